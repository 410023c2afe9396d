"""The scheduler, step by step: ``A:4`` is four tokens of A."""

from __future__ import annotations

import pytest

from backends.paged.block_pool import BlockPool
from backends.paged.scheduler import Scheduler
from backends.paged.sequence import Status
from tests.unit.paged.machine import Machine


def test_a_prompt_is_computed_and_then_one_token_a_step() -> None:
    machine = Machine()
    machine.add("A", 5, max_tokens=3)
    assert machine.run() == ["A:5", "A:1", "A:1"]


def test_prefill_and_decode_share_a_step() -> None:
    machine = Machine()
    machine.add("A", 4)
    machine.step()
    machine.add("B", [1, 2, 3])
    assert machine.step() == "A:1 B:3"
    row_a, row_b = machine.outputs[-1].rows
    assert (row_a.is_prefill, row_b.is_prefill) == (False, True)


def test_a_long_prompt_is_computed_in_chunks_and_the_decoders_go_on() -> None:
    machine = Machine(num_blocks=32, budget=8)
    machine.add("A", [1, 2, 3], max_tokens=9)
    machine.step()
    machine.add("B", 20)
    assert [machine.step() for _ in range(4)] == ["A:1 B:7", "A:1 B:7", "A:1 B:6", "A:1 B:1"]


def test_only_the_step_that_reaches_the_last_token_of_the_prompt_samples() -> None:
    machine = Machine(num_blocks=32, budget=8)
    machine.add("A", 20)
    samples = []
    for _ in range(3):
        machine.step()
        samples.append(machine.outputs[-1].rows[0].samples)
    assert samples == [False, False, True]


def test_those_who_came_first_are_served_first() -> None:
    machine = Machine(num_blocks=32, max_num_seqs=2)
    for name in "ABC":
        machine.add(name, [ord(name)] * 3, max_tokens=2)
    assert machine.run() == ["A:3 B:3", "A:1 B:1", "C:3", "C:1"]


def test_nobody_overtakes_a_request_that_waits_for_blocks() -> None:
    machine = Machine(num_blocks=3, budget=64)
    machine.add("A", [1] * 6, max_tokens=2)
    machine.step()
    machine.add("B", [2] * 8, max_tokens=2)
    machine.add("C", [3], max_tokens=1)
    assert machine.step() == "A:1"
    assert machine.run() == ["B:8 C:1", "B:1"]


def test_out_of_blocks_the_latest_is_preempted_and_starts_again() -> None:
    machine = Machine(num_blocks=3, block_size=4, prefix_caching=False)
    machine.add("A", [1] * 4, max_tokens=4)
    machine.add("B", [2] * 4, max_tokens=4)
    assert machine.step() == "A:4 B:4"
    assert machine.step() == "A:1"
    b = machine.sequences["B"]
    assert (b.status, b.num_computed_tokens, b.block_table) == (Status.PREEMPTED, 0, [])
    assert machine.outputs[-1].preempted == [b]
    assert machine.run() == ["A:1", "A:1", "B:5", "B:1", "B:1"]
    assert b.num_preemptions == 1


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    machine = Machine(num_blocks=4, block_size=2, budget=32)
    machine.add("A", [1] * 3, max_tokens=4)
    machine.add("B", [2, 3, 4, 5], max_tokens=2)
    machine.step()
    machine.step()
    assert machine.sequences["B"].status is Status.PREEMPTED
    machine.run()
    resumed = next(row for output in machine.outputs for row in output.rows if row.num_cached_tokens)
    assert (resumed.sequence.request_id, resumed.num_cached_tokens) == ("B", 2)


def test_a_second_turn_computes_only_what_is_new() -> None:
    machine = Machine(num_blocks=16)
    first = machine.add("first", 10, max_tokens=3)
    machine.run()
    machine.add("second", [*first.token_ids, 7, 8, 9])
    assert machine.step() == "second:4"
    assert machine.outputs[-1].rows[0].num_cached_tokens == 12


def test_identical_prompts_admitted_in_one_step_are_both_computed_and_one_is_kept() -> None:
    machine = Machine(num_blocks=16)
    machine.add("A", 8, max_tokens=2)
    machine.add("B", 8, max_tokens=2)
    assert machine.step() == "A:8 B:8"
    a, b = machine.sequences["A"], machine.sequences["B"]
    assert not set(a.block_table) & set(b.block_table)
    machine.run()
    machine.add("C", 9, max_tokens=1)
    assert machine.step() == "C:1"


def test_a_prompt_that_fills_its_last_block_exactly_takes_the_next_one_when_it_needs_it() -> None:
    machine = Machine(block_size=4)
    a = machine.add("A", 8, max_tokens=2)
    machine.step()
    assert len(a.block_table) == 2
    machine.step()
    assert len(a.block_table) == 0, "done: its blocks are free again"
    assert machine.outputs[-1].rows[0].num_computed_tokens == 8


def test_a_pool_of_one_block_serves_one_after_the_other() -> None:
    machine = Machine(num_blocks=1, block_size=8)
    for name in "AB":
        machine.add(name, [ord(name)] * 3, max_tokens=5)
    assert machine.run() == ["A:3", *["A:1"] * 4, "B:3", *["B:1"] * 4]


def test_samples_of_one_prompt_share_its_blocks_until_they_write() -> None:
    machine = Machine(num_blocks=8, block_size=4)
    a = machine.add("A", 6, max_tokens=3)
    machine.step()
    child = machine.fork("A", "A:1")
    assert child.block_table == a.block_table
    assert machine.step() == "A:1 A:1:1"
    assert child.block_table[0] == a.block_table[0]
    assert child.block_table[1] != a.block_table[1]
    machine.run()


@pytest.mark.parametrize(
    "steps_before", [0, 1, 2, 3], ids=["waiting", "mid prefill", "prefilled", "decoding"]
)
def test_an_abort_frees_everything_at_once(steps_before: int) -> None:
    machine = Machine(num_blocks=8, budget=8)
    machine.add("A", 12, max_tokens=9)
    for _ in range(steps_before):
        machine.step()
    machine.abort("A")
    assert not machine.scheduler.has_work()
    assert machine.pool.num_free == 8


def test_an_abort_while_preempted_leaves_the_queue() -> None:
    machine = Machine(num_blocks=3, block_size=4)
    machine.add("A", [1] * 4)
    machine.add("B", [2] * 4)
    machine.step()
    machine.step()
    assert machine.sequences["B"].status is Status.PREEMPTED
    machine.abort("B")
    assert machine.run() == ["A:1", "A:1"]


@pytest.mark.parametrize(("seqs", "budget"), [(0, 8), (4, 0)])
def test_a_scheduler_that_could_schedule_nothing_is_refused(seqs: int, budget: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Scheduler(BlockPool(4, 4), max_num_seqs=seqs, max_num_batched_tokens=budget)
