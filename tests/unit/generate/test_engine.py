"""The ``generate`` engine with its real worker process and a tiny random model.

The model's words are one token each, so lengths are exact: ``" a b c d"`` is four tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends.base import ControlAction
from backends.errors import InvalidRequest, NothingToStep
from backends.generate.engine import GenerateEngine
from backends.records import FinishReason, Phase, TokenEmitted
from backends.settings import Settings
from tests.engine_harness import Client, Watch, held, press_step, request, run, started
from tests.tiny_models import make_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GenerateEngine]:
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), "llama", tokenizer="words")
    cache = tmp_path_factory.mktemp("cache")
    engine = GenerateEngine(
        Settings(model=str(folder), cache_dir=cache, max_model_len=64, max_tokens=60, batch_size=3)
    )
    async with started(engine):
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(running: GenerateEngine) -> AsyncIterator[GenerateEngine]:
    """The engine, idle and unpaused before and after each test."""
    yield running
    await running.start()
    await running.control(ControlAction.SPEED, 0)
    await running.control(ControlAction.RESUME)
    assert not running.has_work()


# One request at a time


async def test_one_request_runs_at_a_time_in_order_of_arrival(engine: GenerateEngine) -> None:
    watch = Watch(engine)
    clients = await held(engine, request("A", max_tokens=2), request("B", max_tokens=2))
    await run(engine, *clients)
    assert watch.batches == ["A", "A", "B", "B"]
    assert [step.waiting_ids for step in watch.steps] == [["B"], ["B"], [], []]
    assert [step.admitted_ids for step in watch.steps] == [["A"], [], ["B"], []]
    assert [step.finished_ids for step in watch.steps] == [[], ["A"], [], ["B"]]


async def test_the_prompt_is_computed_once_and_then_one_token_a_step(engine: GenerateEngine) -> None:
    watch = Watch(engine)
    await run(engine, Client(engine, request("A", max_tokens=3)))
    assert [step.input_shape for step in watch.steps] == [[1, 4], [1, 1], [1, 1]]
    rows = [step.rows[0] for step in watch.steps]
    assert [row.phase for row in rows] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert [(row.num_computed_tokens, row.num_scheduled_tokens) for row in rows] == [(0, 4), (4, 1), (5, 1)]
    assert [step.attention_pairs for step in watch.steps] == [16, 5, 6]


async def test_slots_are_reserved_for_the_longest_text_and_the_record_says_how_many_are_filled(
    engine: GenerateEngine,
) -> None:
    watch = Watch(engine)
    await run(engine, Client(engine, request("A", max_tokens=3)))
    changes = [step.kv for step in watch.steps if step.kv is not None]
    assert [change.reserved_slots for change in changes] == [{"A": 64}] * 3
    assert [change.filled_slots for change in changes] == [{"A": 4}, {"A": 5}, {"A": 6}]


async def test_tokens_come_one_by_one_and_the_last_chunk_says_why_it_ended(engine: GenerateEngine) -> None:
    (client,) = await held(engine, request("A", max_tokens=4))
    watch = Watch(engine)
    for number in range(1, 4):
        await press_step(engine, watch)
        await client.receives(number)
        assert [r.index for r in watch.records if isinstance(r, TokenEmitted)] == list(range(number))
    await run(engine, client)
    assert [chunk.index for chunk in client.tokens] == [0, 1, 2, 3]
    assert client.chunks[-1].finish_reason is FinishReason.LENGTH


async def test_an_answer_ends_at_the_models_limit(engine: GenerateEngine) -> None:
    client = Client(engine, request("A", " a" * 60, max_tokens=60))
    await run(engine, client)
    assert len(client.tokens) == 4


async def test_an_answer_ends_before_its_stop_string(engine: GenerateEngine) -> None:
    whole = Client(engine, request("A", max_tokens=8))
    await run(engine, whole)
    words = whole.text.split()
    stop = next(word for word in words[1:] if word != words[0])
    cut = Client(engine, request("B", max_tokens=8, stop=(f" {stop}",)))
    await run(engine, cut)
    assert cut.text == whole.text[: whole.text.index(f" {stop}")]
    assert cut.chunks[-1].finish_reason is FinishReason.STOP


async def test_the_same_seed_gives_the_same_text_and_none_a_new_one(engine: GenerateEngine) -> None:
    drawn = {"max_tokens": 20, "temperature": 2.0}
    seeded = [Client(engine, request(f"seeded {n}", seed=7, **drawn)) for n in range(2)]
    free = [Client(engine, request(f"free {n}", **drawn)) for n in range(2)]
    await run(engine, *seeded, *free)
    assert seeded[0].text == seeded[1].text
    assert len({client.text for client in (seeded[0], *free)}) == 3


# A static batch


async def test_a_static_batch_waits_for_its_longest_row_and_keeps_finished_ones(
    engine: GenerateEngine,
) -> None:
    clients = await held(
        engine,
        request("short", " a", mode="static", max_tokens=1),
        request("long", " a b c d", mode="static", max_tokens=3),
        request("alone", max_tokens=1),
    )
    watch = Watch(engine)
    await press_step(engine, watch)
    await press_step(engine, watch)
    assert [client.chunks for client in clients] == [[], [], []], "nothing comes before the end"
    await run(engine, *clients)
    assert watch.batches == ["short long"] * 3 + ["alone"]
    assert [step.input_shape for step in watch.steps] == [[2, 4], [2, 1], [2, 1], [1, 4]]
    assert [step.num_padding_tokens for step in watch.steps] == [3, 0, 0, 0]
    short_rows = [step.rows[0] for step in watch.steps[:3]]
    assert [row.phase for row in short_rows] == [Phase.PREFILL, Phase.FINISHED, Phase.FINISHED]
    assert [len(client.tokens) for client in clients] == [1, 3, 1]
    assert watch.steps[2].finished_ids == ["short", "long"]


async def test_padding_of_a_static_batch_is_not_counted_as_filled(engine: GenerateEngine) -> None:
    clients = await held(engine, request("A", " a", mode="static"), request("B", " a b c d", mode="static"))
    watch = Watch(engine)
    await press_step(engine, watch)
    (step,) = watch.steps
    assert step.kv is not None
    assert step.kv.filled_slots == {"A": 1, "B": 4}
    assert step.attention_pairs == 1 + 16
    await run(engine, *clients)


async def test_nobody_joins_a_static_batch_that_runs(engine: GenerateEngine) -> None:
    clients = await held(engine, request("A", mode="static", max_tokens=2))
    watch = Watch(engine)
    await press_step(engine, watch)
    clients += await held(engine, request("B", mode="static", max_tokens=2))
    await run(engine, *clients)
    assert watch.batches == ["A", "A", "B", "B"]


async def test_a_row_whose_reader_left_is_computed_for_nothing_until_its_batch_is_done(
    engine: GenerateEngine,
) -> None:
    a, b = await held(
        engine, request("A", mode="static", max_tokens=4), request("B", mode="static", max_tokens=3)
    )
    watch = Watch(engine)
    await press_step(engine, watch)
    await a.leave()
    await watch.until(lambda: watch.finished() == {"A": FinishReason.ABORT})
    await run(engine, b)
    assert [step.rows[0].phase for step in watch.steps] == [Phase.PREFILL, Phase.FINISHED, Phase.FINISHED]
    assert watch.steps[-1].finished_ids == ["B"]
    assert len(b.tokens) == 3


# Who leaves


async def test_whoever_leaves_while_waiting_is_never_computed(engine: GenerateEngine) -> None:
    a, b = await held(engine, request("A", max_tokens=2), request("B"))
    watch = Watch(engine)
    await b.leave()
    await watch.until(lambda: watch.finished() == {"B": FinishReason.ABORT})
    await run(engine, a)
    assert watch.batches == ["A", "A"]


async def test_whoever_leaves_while_the_engine_is_held_is_gone_without_another_step(
    engine: GenerateEngine,
) -> None:
    a, b = await held(engine, request("A"), request("B", max_tokens=1))
    watch = Watch(engine)
    await press_step(engine, watch)
    await a.leave()
    await watch.until(lambda: watch.finished() == {"A": FinishReason.ABORT})
    await run(engine, b)
    assert watch.batches == ["A", "B"]


async def test_whoever_leaves_during_a_step_is_gone_when_it_ends(engine: GenerateEngine) -> None:
    (a,) = await held(engine, request("A", " a" * 50))
    watch = Watch(engine)
    await engine.control(ControlAction.STEP)  # the step is not waited for
    await a.leave()
    await watch.until(lambda: watch.finished() == {"A": FinishReason.ABORT})
    await run(engine, Client(engine, request("B", max_tokens=1)))
    assert watch.batches in (["A", "B"], ["B"]), "the second where the step had not begun"


async def test_a_visitor_who_leaves_takes_all_own_requests_along(engine: GenerateEngine) -> None:
    *mine, other = await held(
        engine, request("A", visitor="me"), request("B", visitor="me"), request("C", visitor="you")
    )
    watch = Watch(engine)
    await engine.abort_visitor("me")
    await watch.until(lambda: len(watch.finished()) == 2)
    await run(engine, other, *mine)
    assert [len(client.tokens) for client in (*mine, other)] == [0, 0, 5]


# The gate


async def test_a_paused_engine_computes_nothing_and_each_press_one_step(engine: GenerateEngine) -> None:
    (client,) = await held(engine, request("A", max_tokens=3))
    watch = Watch(engine)
    for number in range(1, 3):
        await press_step(engine, watch)
        assert len(watch.steps) == number
    await run(engine, client)
    assert len(client.tokens) == 3


async def test_the_text_of_a_held_run_is_that_of_a_free_one(engine: GenerateEngine) -> None:
    free = Client(engine, request("A", max_tokens=4))
    await run(engine, free)
    (stepped,) = await held(engine, request("B", max_tokens=4))
    watch = Watch(engine)
    for _ in range(4):
        await press_step(engine, watch)
    await run(engine, stepped)
    assert stepped.text == free.text


async def test_slow_motion_waits_before_every_step(engine: GenerateEngine) -> None:
    watch = Watch(engine)
    await engine.control(ControlAction.SPEED, 0.05)
    await run(engine, Client(engine, request("A", max_tokens=3)))
    starts = [step.start_time for step in watch.steps]
    ends = [step.start_time + step.duration for step in watch.steps]
    assert all(start - end >= 0.05 for start, end in zip(starts[1:], ends, strict=False))


async def test_a_step_needs_a_pause_and_something_to_compute(engine: GenerateEngine) -> None:
    with pytest.raises(NothingToStep, match="Pause it first"):
        await engine.control(ControlAction.STEP)
    await engine.control(ControlAction.PAUSE)
    with pytest.raises(NothingToStep, match="nothing to compute"):
        await engine.control(ControlAction.STEP)


# Bad days


async def test_a_static_batch_refuses_a_seed_by_name(engine: GenerateEngine) -> None:
    watch = Watch(engine)
    with pytest.raises(InvalidRequest, match="static batch cannot honour seed") as refusal:
        await anext(engine.generate(request("A", mode="static", seed=1)))
    assert refusal.value.field == "seed"
    with pytest.raises(InvalidRequest, match="no mode 'turbo'"):
        await anext(engine.generate(request("A", mode="turbo")))
    assert watch.arrived() == []


async def test_queues_are_sampled_at_every_step(engine: GenerateEngine) -> None:
    clients = await held(engine, request("A", max_tokens=1), request("B", max_tokens=1))
    watch = Watch(engine)
    await run(engine, *clients)
    await watch.until(lambda: len(watch.samples) >= 2)  # the last one follows the end of the request
    assert [sample.queues for sample in watch.samples] == [{"waiting": 1}, {"waiting": 0}]


async def test_the_header_says_what_runs_and_what_is_reserved(engine: GenerateEngine) -> None:
    header = engine.recorder.header
    assert header is not None
    assert (header.backend, header.dtype, header.engine.max_model_len) == ("generate", "float32", 64)
    assert {"torch", "transformers"} <= set(header.versions)
    assert "reserves slots" in header.notes["kv"]
