"""Block tables of a pool that works like vLLM's, against what is told of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from backends.records import KVChanged, KVDelta
from backends.vllm_async.kv_watch import KVWatch
from tests.vllm.pool import PoolBooks

NUM_BLOCKS, BLOCK_SIZE = 8, 4


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: str | None = None


class Pool:
    """``vllm.v1.core.block_pool.BlockPool`` in small: the longest free is taken first, and what is
    taken anew loses its hash; block 0 is never given out."""

    def __init__(self) -> None:
        self.blocks = [Block(block_id) for block_id in range(NUM_BLOCKS)]
        self.free = list(self.blocks[1:])
        self.tables: dict[str, list[Block]] = {}
        self.num_tokens: dict[str, int] = {}

    def get_num_free_blocks(self) -> int:
        return len(self.free)

    def take(self, request_id: str) -> bool:
        if not self.free:
            return False
        block = self.free.pop(0)
        block.ref_cnt, block.block_hash = 1, None
        self.tables.setdefault(request_id, []).append(block)
        return True

    def share(self, request_id: str, block: Block) -> None:
        if block in self.free:
            self.free.remove(block)
        block.ref_cnt += 1
        self.tables.setdefault(request_id, []).append(block)

    def give_back(self, request_id: str) -> None:
        self.num_tokens.pop(request_id, None)
        for block in reversed(self.tables.pop(request_id, [])):
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.free.append(block)


def block_of(pool: Pool, request_id: str) -> list[int]:
    return [block.block_id for block in pool.tables[request_id]]


def test_blocks_taken_are_told_in_order_and_only_once() -> None:
    pool = Pool()
    watch = KVWatch(pool)
    pool.take("a")
    pool.take("a")
    watch.look("a", pool.tables["a"], 5)
    first = watch.take()
    watch.look("a", pool.tables["a"], 6)
    second = watch.take()

    assert (first.taken, first.filled_slots, first.num_free) == ({"a": [1, 2]}, {"a": 5}, 5)
    assert (second.taken, second.filled_slots) == ({}, {"a": 6})


def test_a_block_taken_and_given_back_within_one_step_shows_only_in_what_it_dropped() -> None:
    pool = Pool()
    watch = KVWatch(pool)
    for _ in range(7):
        pool.take("old")
    pool.tables["old"][0].block_hash = "text"
    watch.look("old", pool.tables["old"], 28)
    watch.take()
    pool.give_back("old")
    watch.look("old", [], 0)
    assert watch.take().given_back == {"old": [1, 2, 3, 4, 5, 6, 7]}

    pool.free.sort(key=lambda block: block.block_id)
    pool.take("brief")
    watch.look("brief", pool.tables["brief"], 1)
    pool.give_back("brief")
    watch.look("brief", [], 0)
    delta = watch.take()
    assert (delta.taken, delta.given_back, delta.evicted) == ({}, {}, [1])


def test_a_shared_block_is_told_with_its_count_and_again_when_it_is_shared_no_more() -> None:
    pool = Pool()
    watch = KVWatch(pool)
    pool.take("a")
    watch.look("a", pool.tables["a"], 4)
    watch.take()
    pool.share("b", pool.tables["a"][0])
    watch.look("b", pool.tables["b"], 4)
    assert watch.take().ref_counts == {1: 2}
    pool.give_back("a")
    watch.look("a", [], 0)
    assert watch.take().ref_counts == {1: 1}


class Machine(RuleBasedStateMachine):
    """Random lives of requests; what is told is folded by ``PoolBooks``, which holds it against the
    tables, counts and hashes that really are."""

    names = st.sampled_from("abcde")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.watch = KVWatch(self.pool)
        self.books = PoolBooks(NUM_BLOCKS, BLOCK_SIZE, null_block=0)
        self.num_hashes = 0

    def look(self, name: str) -> None:
        self.watch.look(name, self.pool.tables.get(name, []), self.pool.num_tokens.get(name, 0))

    @rule(name=names)
    def grows(self, name: str) -> None:
        tokens = self.pool.num_tokens.get(name, 0)
        if tokens % BLOCK_SIZE == 0 and not self.pool.take(name):
            return
        self.pool.num_tokens[name] = tokens + 1
        table = self.pool.tables[name]
        if (tokens + 1) % BLOCK_SIZE == 0 and table[-1].block_hash is None:
            self.num_hashes += 1
            table[-1].block_hash = f"text {self.num_hashes}"
        self.look(name)

    @rule(name=names)
    def ends(self, name: str) -> None:
        self.pool.give_back(name)
        self.look(name)

    @rule(name=names, data=st.data())
    def finds_a_prefix(self, name: str, data: st.DataObject) -> None:
        findable = [block for block in self.pool.blocks if block.block_hash is not None]
        if self.pool.tables.get(name) or not findable:
            return
        self.pool.share(name, data.draw(st.sampled_from(findable)))
        self.pool.num_tokens[name] = BLOCK_SIZE
        self.look(name)

    @rule(name=names)
    def is_preempted_and_resumes_at_once(self, name: str) -> None:
        self.pool.give_back(name)
        self.look(name)
        self.grows(name)

    @rule(name=names)
    def is_taken_from_and_preempted_unseen(self, name: str) -> None:
        """Between two looks a request takes a block and loses all it has."""
        self.pool.take(name)
        self.pool.give_back(name)
        self.look(name)
        self.watch.look_at_cached()

    @rule()
    def tells(self) -> None:
        delta: KVDelta = self.watch.take()
        self.books.apply(KVChanged(time=0, kv=delta))
        tables = {name: block_of(self.pool, name) for name in self.pool.tables}
        assert {name: table for name, table in self.books.tables.items() if table} == tables
        hashed = {block.block_id for block in self.pool.blocks if block.block_hash is not None}
        assert self.books.cached == hashed

    @invariant()
    def counts_are_right(self) -> None:
        holders = Counter(block.block_id for table in self.pool.tables.values() for block in table)
        assert all(block.ref_cnt == holders[block.block_id] for block in self.pool.blocks)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_whatever_happens_what_is_told_is_what_is = Machine.TestCase
