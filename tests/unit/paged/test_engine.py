"""The paged engine with its real process and a tiny random model.

The model's words are one token each, so lengths are exact: ``" a b c d"`` is four tokens. The pool
has 24 blocks of 4 slots, so it runs out when four texts grow beyond 24 tokens each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends.base import ControlAction
from backends.books import books_of
from backends.errors import InvalidRequest
from backends.paged.engine import PagedEngine
from backends.records import FinishReason, KVChanged, Phase, TokenEmitted
from backends.settings import Settings
from backends.snapshot import SnapshotBuilder
from tests.engine_harness import Client, Watch, held, press_step, request, run, started
from tests.tiny_models import make_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUM_BLOCKS, BLOCK_SIZE = 24, 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PagedEngine]:
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), "llama", tokenizer="words")
    engine = PagedEngine(
        Settings(
            model=str(folder),
            cache_dir=tmp_path_factory.mktemp("cache"),
            max_tokens=90,
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            max_num_seqs=8,
            max_num_batched_tokens=32,
        )
    )
    async with started(engine):
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(running: PagedEngine) -> AsyncIterator[PagedEngine]:
    """The engine, idle, unpaused and with a whole pool before and after each test."""
    yield running
    await running.start()
    await running.control(ControlAction.RESUME)
    assert not running.has_work()
    if running.recorder.head().snapshot.num_free_blocks is not None:
        assert running.recorder.head().snapshot.num_free_blocks == NUM_BLOCKS


async def test_a_prompt_is_computed_once_and_then_one_token_a_step(engine: PagedEngine) -> None:
    watch = Watch(engine)
    await run(engine, Client(engine, request("A", max_tokens=3)))
    assert [step.input_shape for step in watch.steps] == [[1, 4], [1, 1], [1, 1]]
    assert [step.rows[0].num_computed_tokens for step in watch.steps] == [0, 4, 5]
    assert [step.attention_pairs for step in watch.steps] == [16, 5, 6]


async def test_a_prefill_and_decodes_run_in_one_step_without_padding(engine: PagedEngine) -> None:
    clients = await held(engine, request("A"), request("B", " f g"))
    watch = Watch(engine)
    await press_step(engine, watch)
    clients += await held(engine, request("C", " h i j"))
    await press_step(engine, watch)
    step = watch.steps[1]
    assert [(row.request_id, row.phase, row.num_scheduled_tokens) for row in step.rows] == [
        ("A", Phase.DECODE, 1), ("B", Phase.DECODE, 1), ("C", Phase.PREFILL, 3)
    ]  # fmt: skip
    assert (step.input_shape, step.num_padding_tokens, step.admitted_ids) == ([1, 5], 0, ["C"])
    await run(engine, *clients)


async def test_a_second_turn_finds_its_beginning_in_the_cache(engine: PagedEngine) -> None:
    first = Client(engine, request("first", " k l m n o p", max_tokens=5))
    await run(engine, first)
    watch = Watch(engine)
    await run(engine, Client(engine, request("second", f" k l m n o p{first.text} a b", max_tokens=2)))
    row = watch.steps[0].rows[0]
    assert (row.num_cached_tokens, row.num_computed_tokens) == (8, 8)
    assert row.num_scheduled_tokens == 5


async def test_out_of_blocks_someone_is_preempted_and_every_text_is_what_it_would_have_been(
    engine: PagedEngine,
) -> None:
    prompts = [" a b c", " d e f", " g h i", " j k l"]
    alone = []
    for number, prompt in enumerate(prompts):
        client = Client(engine, request(f"alone {number}", prompt, max_tokens=40))
        await run(engine, client)
        alone.append(client.text)
    watch = Watch(engine)
    clients = await held(
        engine, *(request(f"{number}", prompt, max_tokens=40) for number, prompt in enumerate(prompts))
    )
    await run(engine, *clients)
    assert any(step.preempted_ids for step in watch.steps)
    assert [client.text for client in clients] == alone


async def test_the_books_balance_through_preemptions_prefix_hits_and_samples(engine: PagedEngine) -> None:
    watch = Watch(engine)
    prompts = [" a b c d e f", " a b c d e g", " h i j", " a b c d e f k l"]
    clients = await held(
        engine,
        *(
            request(f"{number}", prompt, max_tokens=40, ignore_eos=True)
            for number, prompt in enumerate(prompts)
        ),
        request("pair", " m n o p", max_tokens=8, ignore_eos=True, n=2),
    )
    await run(engine, *clients)
    again = Client(engine, request("again", " a b c d e f", max_tokens=3, ignore_eos=True))
    await run(engine, again)
    books = books_of(watch.records)
    assert books.balances
    assert books.apart == {}
    assert books.scheduled_tokens == sum(row.num_scheduled_tokens for s in watch.steps for row in s.rows)
    assert books.total.output_tokens == 4 * 40 + 2 * 8 + 3
    assert books.total.shared_tokens == 4
    assert min(books.total.cached_tokens, books.total.recomputed_tokens) > 0


async def test_the_records_alone_tell_whose_every_block_is(engine: PagedEngine) -> None:
    clients = await held(engine, request("A", max_tokens=20), request("B", " q r s t u v", max_tokens=20))
    builder = SnapshotBuilder()
    watch = Watch(engine)
    for _ in range(6):
        await press_step(engine, watch)
    entries = engine.recorder.since(0)
    for entry in entries:
        builder.apply(entry.record)
    snapshot = builder.snapshot(len(entries), 0.0)
    tables = [block for request in snapshot.requests for block in request.blocks]
    assert len(tables) == len(set(tables)) == NUM_BLOCKS - (snapshot.num_free_blocks or 0)
    assert [request.filled_slots for request in snapshot.requests] == [9, 11]
    await run(engine, *clients)


async def test_whoever_leaves_while_held_gives_the_blocks_back_at_once(engine: PagedEngine) -> None:
    a, b = await held(engine, request("A"), request("B", " w x y z a b"))
    watch = Watch(engine)
    await press_step(engine, watch)
    await b.leave()
    await watch.until(lambda: watch.finished() == {"B": FinishReason.ABORT})
    (change,) = [record.kv for record in watch.records if isinstance(record, KVChanged)]
    assert list(change.given_back) == ["B"]
    assert change.num_free == NUM_BLOCKS - 1
    await run(engine, a)
    assert watch.batches[-1] == "A"


async def test_whoever_leaves_the_queue_is_never_computed(engine: PagedEngine) -> None:
    a, b = await held(engine, request("A"), request("B"))
    watch = Watch(engine)
    await b.leave()
    await watch.until(lambda: "B" in watch.finished())
    await run(engine, a)
    assert set(watch.batches) == {"A"}


async def test_each_press_is_exactly_one_step(engine: PagedEngine) -> None:
    clients = await held(engine, request("A", max_tokens=20), request("B", max_tokens=20))
    watch = Watch(engine)
    for presses in range(1, 11):
        await press_step(engine, watch)
        assert len(watch.steps) == presses
    emitted = [record for record in watch.records if isinstance(record, TokenEmitted)]
    assert len(emitted) == 20
    await run(engine, *clients)


async def test_a_stop_string_ends_the_text_before_it(engine: PagedEngine) -> None:
    free = Client(engine, request("free", max_tokens=8))
    await run(engine, free)
    words = free.text.split(" ")
    stop = f"{words[3]} {words[4][0]}"  # across the border of two tokens
    stopped = Client(engine, request("stopped", max_tokens=8, stop=(stop,)))
    await run(engine, stopped)
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.chunks[-1].finish_reason is FinishReason.STOP


async def test_a_seed_gives_the_same_text_again(engine: PagedEngine) -> None:
    texts = []
    for name in ("one", "two"):
        client = Client(engine, request(name, max_tokens=12, temperature=1.5, seed=7))
        await run(engine, client, Client(engine, request(f"{name} beside", max_tokens=12, temperature=1.0)))
        texts.append(client.text)
    assert texts[0] == texts[1]


async def test_samples_of_one_prompt_come_in_one_stream_each_with_its_own_end(engine: PagedEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, request("A", " a b c d e f", max_tokens=4, n=3, temperature=1.5, seed=1))
    await run(engine, client)
    for sample in range(3):
        chunks = [chunk for chunk in client.chunks if chunk.sample == sample]
        assert [chunk.index for chunk in chunks[:-1]] == [0, 1, 2, 3]
        assert chunks[-1].finish_reason is FinishReason.LENGTH
    assert watch.batches == ["A"] + ["A A/1 A/2"] * 3
    kv = watch.steps[0].kv
    assert kv is not None
    assert set(kv.ref_counts.values()) == {3}


async def test_whoever_leaves_takes_all_samples_along(engine: PagedEngine) -> None:
    (client,) = await held(engine, request("A", n=3))
    watch = Watch(engine)
    await press_step(engine, watch)
    await client.leave()
    await watch.until(lambda: len(watch.finished()) == 3)
    assert set(watch.finished().values()) == {FinishReason.ABORT}


async def test_samples_that_have_not_forked_yet_leave_as_well(engine: PagedEngine) -> None:
    (client,) = await held(engine, request("A", n=3))
    watch = Watch(engine)
    await client.leave()
    await watch.until(lambda: set(watch.finished()) == {"A", "A/1", "A/2"})


async def test_places_are_kept_for_samples_to_come(engine: PagedEngine) -> None:
    clients = await held(engine, request("A", n=6, max_tokens=2), request("B", n=3, max_tokens=2))
    watch = Watch(engine)
    await run(engine, *clients)
    assert max(len(step.rows) for step in watch.steps) <= 8
    assert watch.batches[0] == "A"


async def test_logprobs_are_told_where_asked_for(engine: PagedEngine) -> None:
    client = Client(engine, request("A", max_tokens=3, logprobs=2))
    await run(engine, client)
    for chunk in client.tokens:
        assert chunk.top_logprobs[0] == (chunk.token_id, chunk.logprob), "greedy takes the most likely"
        assert len(chunk.top_logprobs) == 2


async def test_what_the_pool_could_never_hold_is_refused_with_the_limit(engine: PagedEngine) -> None:
    limit = NUM_BLOCKS * BLOCK_SIZE
    with pytest.raises(InvalidRequest, match=f"The prompt has {limit} tokens; .* the limit is {limit}"):
        await anext(engine.generate(request("A", " a" * limit)))
    last = Client(engine, request("B", " a" * (limit - 3), max_tokens=90))
    await run(engine, last)
    assert len(last.tokens) == 3
