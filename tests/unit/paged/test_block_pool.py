"""Blocks: one place each, shared by count, found again by hash, reused least recently used first."""

from __future__ import annotations

import pytest

from backends.paged.block_pool import BlockPool, OutOfBlocks
from backends.paged.sequence import Sequence


def computed(pool: BlockPool, name: str, tokens: list[int]) -> Sequence:
    """A sequence whose tokens are all computed and whose full blocks can be found."""
    sequence = Sequence.of(name, tokens)
    pool.grow(sequence, len(tokens))
    sequence.num_computed_tokens = len(tokens)
    pool.cache_full_blocks(sequence, 0)
    return sequence


TEXT = list(range(10))


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_are_taken_one_at_a_time_as_tokens_need_them(num_tokens: int, num_blocks: int) -> None:
    pool = BlockPool(8, 4)
    sequence = Sequence.of("A", list(range(num_tokens)))
    for held in range(1, num_tokens + 1):
        pool.grow(sequence, held)
    assert len(sequence.block_table) == num_blocks
    assert pool.num_free == 8 - num_blocks


def test_a_pool_that_is_out_of_blocks_says_so_and_changes_nothing() -> None:
    pool = BlockPool(2, 4)
    computed(pool, "A", TEXT[:4])
    b = Sequence.of("B", TEXT)
    assert not pool.can_grow(b, 5)
    with pytest.raises(OutOfBlocks):
        pool.grow(b, 5)
    assert (b.block_table, pool.num_free) == ([], 1)


def test_released_blocks_are_free_at_once() -> None:
    pool = BlockPool(4, 4)
    a = computed(pool, "A", TEXT)
    pool.release(a)
    assert (pool.num_free, a.block_table) == (4, [])
    pool.check_integrity([])


def test_a_beginning_is_found_by_its_full_blocks_only() -> None:
    pool = BlockPool(8, 4)
    a = computed(pool, "A", TEXT)
    assert pool.find_cached(Sequence.of("B", [*TEXT, 99])) == a.block_table[:2]
    assert pool.find_cached(Sequence.of("C", [*TEXT[:7], 99, 98])) == a.block_table[:1]
    assert pool.find_cached(Sequence.of("D", [99, *TEXT])) == []


def test_only_sequences_of_the_same_salt_find_each_others_blocks() -> None:
    pool = BlockPool(16, 4)
    salted, plain = (Sequence.of(name, TEXT, salt) for name, salt in (("A", "one class"), ("B", None)))
    for sequence in (salted, plain):
        pool.grow(sequence, len(TEXT))
        sequence.num_computed_tokens = len(TEXT)
        pool.cache_full_blocks(sequence, 0)

    assert pool.find_cached(Sequence.of("C", TEXT, "one class")) == salted.block_table[:2]
    assert pool.find_cached(Sequence.of("D", TEXT)) == plain.block_table[:2]
    assert pool.find_cached(Sequence.of("E", TEXT, "another class")) == []


def test_a_prefix_shorter_than_a_block_is_never_shared() -> None:
    pool = BlockPool(8, 4)
    computed(pool, "A", TEXT[:3])
    assert pool.find_cached(Sequence.of("B", [*TEXT[:3], 50, 51])) == []


def test_a_block_is_found_only_behind_the_same_blocks() -> None:
    pool = BlockPool(8, 4)
    computed(pool, "A", [1, 1, 1, 1, 2, 2, 2, 2])
    assert pool.find_cached(Sequence.of("B", [3, 3, 3, 3, 2, 2, 2, 2, 9])) == []


def test_a_prompt_wholly_in_the_cache_leaves_one_token_to_compute() -> None:
    pool = BlockPool(8, 4)
    a = computed(pool, "A", TEXT[:8])
    assert pool.find_cached(Sequence.of("B", TEXT[:8])) == a.block_table[:1]
    assert pool.find_cached(Sequence.of("C", TEXT[:9])) == a.block_table[:2]


def test_shared_blocks_are_counted_and_freed_by_the_last_who_uses_them() -> None:
    pool = BlockPool(8, 4)
    a = computed(pool, "A", TEXT)
    b = Sequence.of("B", [*TEXT[:8], 99])
    pool.reuse(b, pool.find_cached(b))
    assert (b.num_computed_tokens, b.num_cached_tokens) == (8, 8)
    assert [pool.ref_count(block) for block in a.block_table] == [2, 2, 1]
    pool.release(a)
    assert [pool.ref_count(block) for block in b.block_table] == [1, 1]
    pool.release(b)
    assert pool.num_free == 8


def test_blocks_of_a_finished_text_stay_findable_until_they_are_reused() -> None:
    pool = BlockPool(3, 4)
    a = computed(pool, "A", TEXT)
    table = list(a.block_table)
    pool.release(a)
    b = Sequence.of("B", [*TEXT, 99])
    assert pool.find_cached(b) == table[:2]
    computed(pool, "C", [50, 51, 52, 53, 54])
    assert pool.find_cached(b) == table[:1], "the plain block went first, then the end of the text"


def test_the_least_recently_used_cached_block_is_reused_first() -> None:
    pool = BlockPool(2, 1)
    for name, token in (("A", 1), ("B", 2)):
        pool.release(computed(pool, name, [token]))
    again = Sequence.of("A again", [1, 9])
    pool.reuse(again, pool.find_cached(again))
    pool.release(again)
    computed(pool, "C", [3])
    assert pool.find_cached(Sequence.of("?", [1, 9])) != []
    assert pool.find_cached(Sequence.of("?", [2, 9])) == []


def test_a_cached_block_that_is_free_counts_once_when_a_request_is_admitted() -> None:
    pool = BlockPool(3, 4)
    pool.release(computed(pool, "A", TEXT[:8]))
    b = Sequence.of("B", [*TEXT[:8], 1, 2, 3, 4, 5])
    cached = pool.find_cached(b)
    assert pool.can_admit(cached, 12)
    assert not pool.can_admit(cached, 13)


def test_a_fork_shares_everything_and_copies_the_last_block_when_it_writes() -> None:
    pool = BlockPool(8, 4)
    parent = computed(pool, "A", TEXT[:6])
    child = Sequence("A:1", TEXT[:6], 6, num_computed_tokens=6)
    pool.fork(parent, child)
    assert child.block_table == parent.block_table
    shared = parent.block_table[1]
    ((source, target),) = pool.grow(child, 7)
    assert (source, child.block_table) == (shared, [parent.block_table[0], target])
    assert pool.grow(parent, 7) == [], "the other one is alone with it now"
    pool.check_integrity([parent, child])


def test_a_fork_at_the_end_of_a_full_block_copies_nothing() -> None:
    pool = BlockPool(8, 4)
    parent = computed(pool, "A", TEXT[:8])
    child = Sequence("A:1", TEXT[:8], 8, num_computed_tokens=8)
    pool.fork(parent, child)
    assert pool.grow(child, 9) == []
    assert pool.grow(parent, 9) == []
    assert child.block_table[:2] == parent.block_table[:2]
    assert child.block_table[2] != parent.block_table[2]


def test_a_copy_needs_a_free_block() -> None:
    pool = BlockPool(2, 4)
    parent = computed(pool, "A", TEXT[:6])
    child = Sequence("A:1", TEXT[:6], 6, num_computed_tokens=6)
    pool.fork(parent, child)
    assert not pool.can_grow(child, 7)


def test_the_changes_of_a_step_are_told_once() -> None:
    pool = BlockPool(4, 4)
    a = computed(pool, "A", TEXT[:5])
    delta = pool.take_changes([a])
    assert delta.taken == {"A": [0, 1]}
    assert (delta.cached, delta.num_free, delta.filled_slots) == ([0], 2, {"A": 5})
    b = Sequence.of("B", [*TEXT[:4], 9])
    pool.reuse(b, pool.find_cached(b))
    assert pool.take_changes([]).ref_counts == {0: 2}
    pool.release(a)
    delta = pool.take_changes([])
    assert (delta.given_back, delta.ref_counts) == ({"A": [0, 1]}, {0: 1})
    assert pool.take_changes([]).given_back == {}


def test_what_is_dropped_to_be_reused_is_told() -> None:
    pool = BlockPool(1, 4)
    pool.release(computed(pool, "A", TEXT[:4]))
    pool.take_changes([])
    computed(pool, "B", [9])
    assert pool.take_changes([]).evicted == [0]


def test_without_prefix_caching_nothing_is_found() -> None:
    pool = BlockPool(8, 4, prefix_caching=False)
    computed(pool, "A", TEXT)
    assert pool.find_cached(Sequence.of("B", [*TEXT, 1])) == []


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0), (-1, 4)])
def test_a_pool_of_nothing_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(num_blocks, block_size)


def test_the_integrity_check_finds_a_lost_block() -> None:
    pool = BlockPool(4, 4)
    a = computed(pool, "A", TEXT)
    a.block_table.pop()
    with pytest.raises(AssertionError, match="reference counts"):
        pool.check_integrity([a])
