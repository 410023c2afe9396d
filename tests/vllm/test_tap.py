"""What the tap in vLLM's scheduler tells of a real engine: rows, blocks, queues, preemptions."""

from __future__ import annotations

import asyncio

import pytest

from backends.base import ControlAction
from backends.books import books_of
from backends.records import Exposure, FinishReason, KVChanged, Phase, TokenEmitted
from backends.vllm_async.engine import VllmEngine
from tests.engine_harness import Client, Watch, press_step, request, run
from tests.vllm.harness import SENTENCE, held_in_vllm
from tests.vllm.pool import PoolBooks

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_header_tells_the_pool_as_vllm_has_laid_it_out(engine: VllmEngine) -> None:
    header = engine.recorder.header
    assert header is not None
    assert header.engine.num_blocks == 12
    assert header.engine.block_size == 32
    assert header.engine.null_block == 0
    assert header.engine.max_model_len == 11 * 32
    assert header.dtype == "float32"
    assert set(header.versions) >= {"vllm", "torch", "python"}
    assert header.measured["kv"] == Exposure.MEASURED


async def test_a_prompt_is_prefilled_in_one_step_and_then_decoded(engine: VllmEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, request("one", "The capital of France is", max_tokens=4, ignore_eos=True))
    await client.task

    rows = [row for step in watch.steps for row in step.rows]
    assert [row.phase for row in rows] == [Phase.PREFILL] + [Phase.DECODE] * 3
    assert [row.num_computed_tokens for row in rows] == [0, 5, 6, 7]
    assert [step.input_shape for step in watch.steps] == [[5], [1], [1], [1]]
    assert watch.steps[0].admitted_ids == ["one"]
    assert watch.steps[-1].finished_ids == ["one"]
    assert watch.finished() == {"one": FinishReason.LENGTH}
    assert client.text.startswith(" Paris.")


async def test_every_token_is_told_of_with_the_step_that_chose_it(engine: VllmEngine) -> None:
    watch = Watch(engine)
    await Client(engine, request("told", "One two three", max_tokens=6, ignore_eos=True)).task

    told = [record for record in watch.records if isinstance(record, TokenEmitted)]
    assert [token.index for token in told] == list(range(6))
    assert [token.step_id for token in told] == [step.step_id for step in watch.steps]
    ends = [step.start_time + step.duration for step in watch.steps]
    assert [token.time for token in told] == ends


async def test_six_prompts_in_eleven_blocks_preempt_and_resume_and_the_books_balance(
    engine: VllmEngine,
) -> None:
    watch = Watch(engine)
    clients = [
        Client(engine, request(f"six{i}", SENTENCE * 2 + f"Number {i}:", max_tokens=40, ignore_eos=True))
        for i in range(6)
    ]
    await asyncio.gather(*(client.task for client in clients))

    assert [(client.error, len(client.tokens)) for client in clients] == [(None, 40)] * 6
    index, name = next((i, step.preempted_ids[0]) for i, step in enumerate(watch.steps) if step.preempted_ids)
    assert name in watch.steps[index].waiting_ids
    assert name not in [row.request_id for row in watch.steps[index].rows]
    resumed = next(row for step in watch.steps[index + 1 :] for row in step.rows if row.request_id == name)
    assert resumed.phase == Phase.PREFILL
    assert resumed.num_computed_tokens == resumed.num_cached_tokens
    books = books_of(watch.records)
    assert set(books.settled) == {f"six{i}" for i in range(6)}
    assert books.balances
    assert books.total.recomputed_tokens > 0


async def test_a_second_turn_finds_the_blocks_of_the_first(engine: VllmEngine) -> None:
    text = SENTENCE * 4
    await Client(engine, request("first turn", text, max_tokens=4)).task
    watch = Watch(engine)
    await Client(engine, request("second turn", text + "And then?", max_tokens=4)).task

    first = watch.steps[0].rows[0]
    assert first.num_cached_tokens == first.num_computed_tokens
    assert first.num_cached_tokens % 32 == 0
    assert first.num_cached_tokens >= 64


async def test_two_requests_share_the_blocks_of_a_common_prefix_with_reference_count_two(
    engine: VllmEngine,
) -> None:
    await Client(engine, request("seen before", SENTENCE * 3, max_tokens=1)).task
    clients = await held_in_vllm(
        engine, *(request(f"shares{i}", SENTENCE * 3 + f"{i}", max_tokens=3) for i in range(2))
    )
    watch = Watch(engine)
    await run(engine, *clients)

    first = watch.steps[0].kv
    assert first is not None
    tables = [first.taken["shares0"], first.taken["shares1"]]
    common = [a for a, b in zip(*tables, strict=False) if a == b]
    assert len(common) == 1
    assert {block: first.ref_counts[block] for block in common} == dict.fromkeys(common, 2)


async def test_blocks_are_found_by_requests_of_the_same_salt_only(engine: VllmEngine) -> None:
    watch = Watch(engine)
    for name, salt in (("first", "one"), ("alike", "one"), ("apart", "two")):
        await Client(engine, request(name, SENTENCE * 4, max_tokens=1, cache_salt=salt)).task

    found = {row.request_id: row.num_cached_tokens for step in watch.steps for row in step.rows}
    assert (found["first"], found["apart"]) == (0, 0)
    assert found["alike"] >= 64


async def test_each_press_runs_one_step_with_one_token_for_each_that_runs(engine: VllmEngine) -> None:
    clients = await held_in_vllm(
        engine, *(request(f"step{i}", f"Count with me {i}", max_tokens=6, ignore_eos=True) for i in range(2))
    )
    watch = Watch(engine)
    for pressed in range(1, 4):
        await press_step(engine, watch)
        await watch.until(lambda pressed=pressed: len(watch.steps) == pressed)
    late = await held_in_vllm(engine, request("late", "I come later", max_tokens=3, ignore_eos=True))
    assert len(watch.steps) == 3
    await press_step(engine, watch)
    await watch.until(lambda: len(watch.steps) == 4)

    assert watch.batches == ["step0 step1"] * 3 + ["step0 step1 late"]
    await run(engine, *clients, *late)
    assert [len(client.tokens) for client in clients] == [6, 6]


async def test_one_who_leaves_while_the_engine_is_held_is_gone_before_the_next_step(
    engine: VllmEngine,
) -> None:
    stays, leaves = await held_in_vllm(
        engine,
        request("stays", "One", max_tokens=3, ignore_eos=True),
        request("leaves", "Two", max_tokens=3, ignore_eos=True),
    )
    watch = Watch(engine)
    await leaves.leave()
    await watch.until(lambda: "leaves" in watch.finished())
    assert watch.steps == []

    await run(engine, stays)
    assert all(batch == "stays" for batch in watch.batches)
    assert watch.finished() == {"leaves": FinishReason.ABORT, "stays": FinishReason.LENGTH}


async def test_one_who_leaves_midway_gives_its_blocks_back(engine: VllmEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, request("gone", SENTENCE * 2, max_tokens=200, ignore_eos=True))
    await client.receives(3)
    await client.leave()
    await watch.until(lambda: "gone" in watch.finished())

    changes = [record.kv for record in watch.records if isinstance(record, KVChanged)]
    given_back = [kv.given_back["gone"] for kv in changes if "gone" in kv.given_back]
    taken = [block for step in watch.steps for block in step.kv.taken.get("gone", [])]
    assert given_back == [taken]
    assert watch.finished() == {"gone": FinishReason.ABORT}


async def test_a_press_for_one_who_has_ended_does_not_wait_for_the_next(engine: VllmEngine) -> None:
    (client,) = await held_in_vllm(engine, request("short", "One", max_tokens=2, ignore_eos=True))
    watch = Watch(engine)
    for _ in range(2):
        await engine.control(ControlAction.STEP)
    with_luck = [engine.control(ControlAction.STEP) for _ in range(2)]  # asked for while it still runs
    await asyncio.gather(*with_luck, return_exceptions=True)
    await client.task
    (late,) = await held_in_vllm(engine, request("next", "Two", max_tokens=2, ignore_eos=True))
    await press_step(engine, watch)
    await watch.until(lambda: len(watch.steps) == 3)

    assert watch.batches == ["short", "short", "next"]
    await run(engine, late)


async def test_slow_motion_waits_before_every_step_and_full_speed_returns(engine: VllmEngine) -> None:
    await engine.control(ControlAction.SPEED, 0.3)
    watch = Watch(engine)
    await Client(engine, request("slow", "One", max_tokens=4, ignore_eos=True)).task
    await engine.control(ControlAction.SPEED, 0)

    starts = [step.start_time for step in watch.steps]
    ends = [step.start_time + step.duration for step in watch.steps]
    assert all(later - earlier >= 0.3 for earlier, later in zip(ends, starts[1:], strict=False))
    assert watch.finished() == {"slow": FinishReason.LENGTH}


async def test_after_all_of_that_the_tables_of_every_record_have_fitted_together(
    engine: VllmEngine,
) -> None:
    """Runs over what the tests before it left, whichever they were, and a preemption of its own."""
    clients = [
        Client(engine, request(f"last{i}", f"{i} {SENTENCE * 2}", max_tokens=30, ignore_eos=True))
        for i in range(6)
    ]
    await asyncio.gather(*(client.task for client in clients))

    pool = PoolBooks.of(engine.recorder.header)
    _, entries = engine.recorder.history()
    for entry in entries:
        pool.apply(entry.record)
    assert pool.num_free == 11
    assert not any(pool.tables.values())
    assert pool.most_shared >= 1
