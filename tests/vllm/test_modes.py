"""Blocking calls and asynchronous ones, on one and the same engine."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import Any

import msgspec
import pytest

from backends.api.in_process import in_process_post
from backends.base import ControlAction
from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.ground import Ground
from backends.lessons.lesson import read_lesson
from backends.records import FinishReason, TokenEmitted, encode_record
from backends.vllm_async.engine import VllmEngine
from tests.engine_harness import PATIENCE, Client, Watch, request
from tests.lesson_values import ALWAYS, VALUES, Trace
from tests.vllm.harness import held_in_vllm

pytestmark = pytest.mark.asyncio(loop_scope="module")


def call(name: str, mode: str, *prompts: str, max_tokens: int = 4):  # noqa: ANN201
    """One call with all these prompts."""
    first, *more = prompts
    single = request(name, first, mode=mode, stream=False, max_tokens=max_tokens, ignore_eos=True)
    return msgspec.structs.replace(single, more_prompts=tuple(more))


def calls_of(watch: Watch) -> list[set[str]]:
    """For each step, the calls that have a row in it."""
    return [{row.request_id.partition("/")[0] for row in step.rows} for step in watch.steps]


@pytest.mark.parametrize("mode", ["blocking", "async"])
async def test_the_prompts_of_one_call_share_the_batch(engine: VllmEngine, mode: str) -> None:
    (client,) = await held_in_vllm(engine, call(mode, mode, "One", "Two", "Three"))
    watch = Watch(engine)
    await engine.control(ControlAction.RESUME)
    await client.task

    assert client.error is None
    assert [len(step.rows) for step in watch.steps] == [3] * 4
    assert {chunk.sample for chunk in client.tokens} == {0, 1, 2}
    assert watch.finished() == dict.fromkeys([mode, f"{mode}/1", f"{mode}/2"], FinishReason.LENGTH)


async def test_two_blocking_calls_run_one_after_the_other(engine: VllmEngine) -> None:
    watch = Watch(engine)
    first = Client(engine, call("first", "blocking", "One", "Two"))
    second = Client(engine, call("second", "blocking", "Three", "Four"))
    await asyncio.gather(first.task, second.task)

    in_order = [call for call, _ in groupby(calls_of(watch))]
    assert in_order == [{"first"}, {"second"}]
    assert any(sample.queues["blocking_calls"] == 1 for sample in watch.samples)


async def test_two_asynchronous_calls_share_the_batch(engine: VllmEngine) -> None:
    clients = await held_in_vllm(
        engine, call("first", "async", "One", "Two"), call("second", "async", "Three", "Four")
    )
    watch = Watch(engine)
    await engine.control(ControlAction.RESUME)
    await asyncio.gather(*(client.task for client in clients))

    assert calls_of(watch) == [{"first", "second"}] * 4


async def test_a_blocking_call_gives_all_its_tokens_at_its_end(engine: VllmEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, call("late", "blocking", "Once upon a time", max_tokens=5))
    await client.task

    told = [record for record in watch.records if isinstance(record, TokenEmitted)]
    end = watch.steps[-1].start_time + watch.steps[-1].duration
    assert [token.step_id for token in told] == [step.step_id for step in watch.steps]
    assert len({token.time for token in told}) == 1
    assert told[0].time >= end
    assert [chunk.text for chunk in client.tokens[:-1]] == [""] * 4
    assert client.text


async def test_a_call_that_waits_can_be_taken_back(engine: VllmEngine) -> None:
    (runs,) = await held_in_vllm(engine, call("runs", "blocking", "One"))
    watch = Watch(engine)
    waits = Client(engine, call("waits", "blocking", "Two", "Three"))
    await watch.until(lambda: any(sample.queues["blocking_calls"] for sample in watch.samples))
    await waits.leave()
    await watch.until(lambda: {"waits", "waits/1"} <= set(watch.finished()))
    await engine.control(ControlAction.RESUME)
    await runs.task

    assert runs.error is None
    assert calls_of(watch) == [{"runs"}] * 4


async def test_a_call_that_runs_can_be_taken_back_and_the_next_goes_on(engine: VllmEngine) -> None:
    (runs,) = await held_in_vllm(engine, call("runs too", "blocking", "One", "Two", max_tokens=100))
    watch = Watch(engine)
    waits = Client(engine, call("comes next", "blocking", "Three"))
    await runs.leave()
    await watch.until(lambda: {"runs too", "runs too/1"} <= set(watch.finished()))
    await engine.control(ControlAction.RESUME)
    await waits.task

    assert waits.error is None
    assert calls_of(watch) == [{"comes next"}] * 4


class Borrowed:
    """An engine that is neither started nor stopped: it goes on serving others."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


async def test_the_lesson_measures_what_its_records_come_to(engine: VllmEngine) -> None:
    lesson, version = read_lesson("blocking-against-async", "en"), engine.recorder.version
    ground = Ground(lambda name, **_: Borrowed(engine), lambda _: None, in_process_post(engine.settings))  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE):
        outcome = await EXPERIMENTS[lesson.instead["vllm"]](ground)

    assert engine.recorder.header is not None
    lines = [encode_record(engine.recorder.header)]
    lines += [entry.line for entry in engine.recorder.since(version)]
    recomputed = VALUES[lesson.slug](Trace("\n".join(line.decode() for line in lines)))
    assert {one.name: one.value for one in outcome.measured} == pytest.approx(recomputed)
    assert recomputed == {**recomputed, **ALWAYS[lesson.slug]}
