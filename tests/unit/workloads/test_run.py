"""Many requests on one engine, each by itself."""

from __future__ import annotations

import asyncio

import pytest

from backends.errors import EngineDied
from backends.records import RequestArrived, RequestFinished, Source
from backends.workloads.run import Run, run_on
from backends.workloads.workload import Planned, Workload, plan
from tests.fakes import FakeBackend


async def run_of(engine: FakeBackend, *planned: Planned) -> Run:
    try:
        return await run_on(engine, planned)
    finally:
        await engine.stop()


def now(prompt: str = "one two", max_tokens: int = 3) -> Planned:
    return Planned(at=0, prompt=prompt, max_tokens=max_tokens)


async def test_every_request_arrives_and_ends_on_the_record() -> None:
    run = await run_of(FakeBackend(), *plan(Workload(students=5, output_tokens=(2, 4))))

    arrived = [record for record in run.records if isinstance(record, RequestArrived)]
    finished = [record.request_id for record in run.records if isinstance(record, RequestFinished)]
    assert {record.request_id for record in arrived} == set(finished) == set(run.request_ids)
    assert {record.source for record in arrived} == {Source.WORKLOAD}
    assert sorted(record.max_tokens for record in arrived) == [2, 2, 2, 4, 4]
    assert run.num_ended == 5
    assert run.errors == {}


async def test_a_later_request_arrives_at_its_time() -> None:
    late = Planned(at=0.2, prompt="late", max_tokens=1)
    run = await run_of(FakeBackend(), now(), late)

    times = {r.request_id: r.time for r in run.records if isinstance(r, RequestArrived)}
    assert times[run.request_ids[1]] - run.start_time >= 0.2


async def test_more_records_than_the_log_holds_are_all_kept() -> None:
    run = await run_of(FakeBackend(capacity=60, step_seconds=0.01), *[now(max_tokens=40)] * 3)

    finished = [record for record in run.records if isinstance(record, RequestFinished)]
    assert len(run.records) > 60
    assert len(finished) == 3


async def test_what_goes_wrong_with_one_is_told_and_the_others_go_on() -> None:
    run = await run_of(FakeBackend(), now(), now("word " * 100), now())

    assert list(run.errors) == [run.request_ids[1]]
    assert "100" in run.errors[run.request_ids[1]].message
    assert run.num_ended == 3


async def test_an_engine_that_dies_ends_the_run_with_an_error_for_each() -> None:
    engine = FakeBackend(step_seconds=0.01)
    running = asyncio.create_task(run_on(engine, [now(max_tokens=40)] * 3))
    while engine.num_in_flight < 3:
        await asyncio.sleep(0)
    engine.die()
    run = await running
    await engine.stop()

    assert [type(error) for error in run.errors.values()] == [EngineDied] * 3


async def test_who_watches_hears_of_the_begin_and_of_every_end() -> None:
    seen: list[int] = []
    engine = FakeBackend()
    await run_on(engine, [now()] * 3, on_change=lambda run: seen.append(run.num_ended))
    await engine.stop()

    assert seen == [0, 1, 2, 3]


async def test_whole_answers_can_be_asked_for() -> None:
    engine = FakeBackend()
    run = await run_on(engine, [now()], stream=False)
    await engine.stop()

    assert [r.stream for r in run.records if isinstance(r, RequestArrived)] == [False]


async def test_stopping_a_run_ends_all_of_it() -> None:
    engine = FakeBackend(step_seconds=0.01)
    running = asyncio.create_task(run_on(engine, [now(max_tokens=40)] * 3))
    while engine.num_in_flight < 3:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    try:
        async with asyncio.timeout(5):
            while engine.num_in_flight:
                await asyncio.sleep(0.01)
    finally:
        await engine.stop()
