"""The naive engine with its real worker process and a tiny random model.

The model's words are one token each, so lengths are exact: ``" a b c d"`` is four tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends.base import ControlAction
from backends.errors import InvalidRequest, MisdeliveredResult, NothingToStep, Overloaded
from backends.naive.engine import NaiveEngine
from backends.naive.messages import StepResult
from backends.records import FinishReason, Phase, State
from backends.settings import Settings
from tests.engine_harness import PATIENCE, Client, Watch, held, press_step, request, run, started
from tests.tiny_models import make_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NaiveEngine]:
    folder = make_tiny_model(tmp_path_factory.mktemp("opt"), "opt", tokenizer="words")
    cache = tmp_path_factory.mktemp("cache")
    engine = NaiveEngine(
        Settings(model=str(folder), cache_dir=cache, max_model_len=64, max_tokens=60, max_waiting=8)
    )
    async with started(engine):
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(running: NaiveEngine) -> AsyncIterator[NaiveEngine]:
    """The engine, idle and unpaused before and after each test."""
    yield running
    left_over = list(running._streams)
    for request_id in left_over:  # or one failing test would fail all that follow
        await running.abort(request_id)
    await running.start()
    await running.control(ControlAction.SPEED, 0)
    await running.control(ControlAction.RESUME)
    assert left_over == []
    assert running.workload_manager.depths() == {"incoming_queue": 0, "incoming_streaming_queue": 0}


async def test_two_prompts_of_four_tokens_run_from_2_4_to_2_25_in_22_steps(engine: NaiveEngine) -> None:
    watch = Watch(engine)
    clients = await held(
        engine, request("A", " a b c d", max_tokens=22), request("B", " f g h i", max_tokens=22)
    )
    watch = Watch(engine)
    await run(engine, *clients)
    assert [step.input_shape for step in watch.steps] == [[2, length] for length in range(4, 26)]
    lengths = [row.num_scheduled_tokens for step in watch.steps for row in step.rows if row.request_id == "A"]
    assert sum(length**2 for length in lengths) == 5_511
    assert sum(lengths) == 319
    assert sum(step.attention_pairs or 0 for step in watch.steps) == 2 * 5_511
    assert [len(client.tokens) for client in clients] == [22, 22]


async def test_a_third_joins_in_the_next_step_and_a_fifth_waits(engine: NaiveEngine) -> None:
    clients = await held(engine, request("A"), request("B"))
    watch = Watch(engine)
    await press_step(engine, watch)
    clients += await held(engine, request("C"), request("D"), request("E"))
    await press_step(engine, watch)
    assert watch.batches == ["A B", "A B C D"]
    assert watch.steps[1].admitted_ids == ["C", "D"]
    assert watch.steps[1].waiting_ids == ["E"]
    assert [row.phase for row in watch.steps[1].rows] == [
        Phase.DECODE, Phase.DECODE, Phase.PREFILL, Phase.PREFILL
    ]  # fmt: skip
    await run(engine, *clients)
    assert watch.batches[2:6] == ["A B C D"] * 3 + ["C D E"]


async def test_padding_is_what_the_shape_holds_beyond_the_tokens(engine: NaiveEngine) -> None:
    clients = await held(engine, request("A", " a", max_tokens=1), request("B", " a b c d e f", max_tokens=1))
    watch = Watch(engine)
    await run(engine, *clients)
    (step,) = watch.steps
    assert (step.input_shape, step.num_padding_tokens, step.attention_pairs) == ([2, 6], 5, 1 + 36)


async def test_whole_answers_run_as_one_static_batch_and_come_at_its_end(engine: NaiveEngine) -> None:
    short, long, late = (
        request("short", stream=False, max_tokens=2),
        request("long", stream=False, max_tokens=4),
        request("late", stream=False, max_tokens=1),
    )
    clients = await held(engine, short, long)
    watch = Watch(engine)
    await press_step(engine, watch)
    clients += await held(engine, late)
    await press_step(engine, watch)
    await press_step(engine, watch)
    assert watch.batches == ["short long"] * 3
    assert watch.steps[2].rows[0].phase is Phase.FINISHED
    assert clients[0].chunks == []
    await run(engine, *clients)
    assert watch.batches[3:] == ["short long", "late"]
    assert [len(client.tokens) for client in clients] == [2, 4, 1]
    assert watch.steps[3].finished_ids == ["short", "long"]


async def test_streams_and_whole_answers_run_side_by_side_and_no_result_is_misdelivered(
    engine: NaiveEngine,
) -> None:
    watch = Watch(engine)
    clients = [Client(engine, request(f"stream {i}", max_tokens=20)) for i in range(3)]
    clients += [Client(engine, request(f"whole {i}", stream=False, max_tokens=20)) for i in range(3)]
    await run(engine, *clients)
    texts = ["".join(chunk.text for chunk in client.tokens) for client in clients]
    assert len(set(texts)) == 1, "the same prompt, greedy, gives the same text in both pools"
    assert {step.pool for step in watch.steps} == {"streaming", "whole"}
    assert engine.executor.num_misdelivered == 0


async def test_each_token_is_one_chunk_and_the_last_chunk_says_why_it_ended(engine: NaiveEngine) -> None:
    client = Client(engine, request("A", max_tokens=20))
    await run(engine, client)
    assert [chunk.index for chunk in client.tokens] == list(range(20))
    assert client.chunks[-1].finish_reason is FinishReason.LENGTH


async def test_an_answer_ends_at_the_models_limit(engine: NaiveEngine) -> None:
    client = Client(engine, request("A", " a" * 60, max_tokens=60))
    await run(engine, client)
    assert len(client.tokens) == 4


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole answer"])
async def test_whoever_leaves_is_out_of_the_next_step(engine: NaiveEngine, stream: bool) -> None:
    a, b = await held(engine, request("A", stream=stream), request("B", stream=stream))
    watch = Watch(engine)
    await press_step(engine, watch)
    await a.leave()
    assert watch.finished() == {"A": FinishReason.ABORT}
    await run(engine, b)
    assert watch.batches == ["A B"] + ["B"] * 4


async def test_whoever_leaves_during_a_step_is_gone_when_it_ends(engine: NaiveEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, request("A", max_tokens=50))
    await watch.until(lambda: len(watch.steps) >= 3)
    await client.leave()
    await watch.until(lambda: "A" in watch.finished())
    assert watch.finished()["A"] is FinishReason.ABORT
    assert len(watch.steps) < 50


async def test_a_visitor_who_leaves_takes_all_own_requests_along_and_no_others(engine: NaiveEngine) -> None:
    *mine, other = await held(
        engine,
        request("A", visitor="me"),
        request("B", visitor="me", stream=False),
        request("C", visitor="you"),
    )
    watch = Watch(engine)
    await engine.abort_visitor("me")
    assert watch.finished() == {"A": FinishReason.ABORT, "B": FinishReason.ABORT}
    await run(engine, other, *mine)
    assert [len(client.tokens) for client in mine] == [0, 0]
    assert len(other.tokens) == 5


async def test_a_restart_by_hand_brings_a_new_worker(engine: NaiveEngine) -> None:
    assert engine._process is not None
    old = engine._process.pid
    await engine.control(ControlAction.RESTART)
    assert engine.state.state is State.RESTARTING
    client = Client(engine, request("A"))
    await run(engine, client)
    assert len(client.tokens) == 5
    assert engine._process.pid != old


async def test_a_result_of_another_call_fails_the_batch_and_never_reaches_its_reader(
    engine: NaiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = engine.executor.execute_forward_batch

    def swapped(sequences: list) -> StepResult:
        result = execute(sequences)
        return StepResult(
            call_id=result.call_id,
            start_time=result.start_time,
            duration=result.duration,
            input_shape=result.input_shape,
            rows=[type(row)(**{**as_dict(row), "sequence_id": "somebody else"}) for row in result.rows],
            request_queue_depth=0,
        )

    monkeypatch.setattr(engine.executor, "execute_forward_batch", swapped)
    client = Client(engine, request("A"))
    async with asyncio.timeout(PATIENCE):
        await client.task
    assert isinstance(client.error, MisdeliveredResult)
    assert client.tokens == []


def as_dict(row: object) -> dict[str, object]:
    return {field: getattr(row, field) for field in type(row).__struct_fields__}  # type: ignore[attr-defined]


async def test_a_step_needs_a_pause_and_something_to_compute(engine: NaiveEngine) -> None:
    with pytest.raises(NothingToStep, match="Pause it first"):
        await engine.control(ControlAction.STEP)
    await engine.control(ControlAction.PAUSE)
    with pytest.raises(NothingToStep, match="nothing to compute"):
        await engine.control(ControlAction.STEP)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": "  "}, "The prompt is empty"),
        ({"prompt": " a" * 64}, "The prompt has 64 tokens; .* the limit is 64"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be from 1 to 60"),
        ({"max_tokens": 61}, "max_tokens is 61; it must be from 1 to 60"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"top_p": 0.5}, "naive cannot honour top_p"),
        ({"seed": 7}, "naive cannot honour seed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_cannot_be_served_is_refused_in_words_and_not_queued(
    engine: NaiveEngine, change: dict, message: str
) -> None:
    watch = Watch(engine)
    with pytest.raises(InvalidRequest, match=message):
        await anext(engine.generate(request("A", **change)))
    assert watch.arrived() == []


async def test_a_full_queue_is_refused_and_says_when_to_come_back(engine: NaiveEngine) -> None:
    clients = await held(engine, *(request(str(number)) for number in range(8)))
    with pytest.raises(Overloaded, match="8 requests are waiting or running, and 8 is the limit") as refusal:
        await anext(engine.generate(request("ninth")))
    assert refusal.value.retry_after > 0
    await run(engine, *clients)


async def test_the_header_says_what_runs_and_that_there_is_no_cache(engine: NaiveEngine) -> None:
    header = engine.recorder.header
    assert header is not None
    assert (header.backend, header.dtype, header.engine.batch_size) == ("naive", "float32", 4)
    assert header.shape is not None
    assert header.shape.num_layers == 2
    assert "torch" in header.versions
    assert "no KV cache" in header.notes["kv"]
    assert "no chat template" in header.notes["chat"], "OPT has none"
