"""Whatever comes, in whatever order: no block is lost or shared by mistake, and everybody ends.

``Machine`` checks after every step that the pool is whole, that no limit is passed, and that each
row reads its own text from the cache. Here hypothesis chooses what happens.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.paged.machine import Machine

PREFIXES = [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9], []]
"""Beginnings that requests share, or do not."""

machines = st.builds(
    Machine,
    num_blocks=st.integers(8, 24),
    block_size=st.sampled_from([1, 2, 3, 4, 8]),
    max_num_seqs=st.integers(1, 6),
    budget=st.integers(1, 20),
    prefix_caching=st.booleans(),
)
prompts = st.builds(
    lambda prefix, rest: [*prefix, *rest] or [1],
    st.sampled_from(PREFIXES),
    st.lists(st.integers(0, 3), max_size=8),
)
events = st.one_of(
    st.tuples(st.just("add"), prompts, st.integers(1, 8)),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("abort"), st.integers(0, 20)),
    st.tuples(st.just("fork"), st.integers(0, 20)),
)


def play(machine: Machine, script: list[tuple]) -> None:
    """Do what the script says, and then run to the end."""
    for number, event in enumerate(script):
        match event:
            case ("add", prompt, max_tokens):
                if machine.pool.num_blocks_for(len(prompt) + max_tokens) <= machine.pool.num_blocks:
                    machine.add(str(number), prompt, max_tokens)
            case ("step", count):
                for _ in range(count):
                    if machine.scheduler.has_work():
                        machine.step()
            case ("abort", index):
                if alive := list(machine.scheduler.sequences()):
                    machine.abort(alive[index % len(alive)].request_id)
            case ("fork", index):
                decoding = [s for s in machine.scheduler.running if s.num_new_tokens == 1]
                if decoding:
                    machine.fork(decoding[index % len(decoding)].request_id, str(number))
    machine.run()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machines, st.lists(events, max_size=40))
def test_everybody_ends_and_the_pool_is_whole_again(machine: Machine, script: list[tuple]) -> None:
    play(machine, script)
    assert machine.pool.num_free == machine.pool.num_blocks
    for sequence in machine.sequences.values():
        assert sequence.block_table == []


@settings(max_examples=100, deadline=None)
@given(machines, st.lists(st.tuples(prompts, st.integers(1, 8)), min_size=1, max_size=8))
def test_the_text_is_the_same_in_any_pool(machine: Machine, requests: list[tuple[list[int], int]]) -> None:
    large = Machine(num_blocks=1000, block_size=4, max_num_seqs=100, budget=1000)
    for number, (prompt, max_tokens) in enumerate(requests):
        if machine.pool.num_blocks_for(len(prompt) + max_tokens) <= machine.pool.num_blocks:
            machine.add(str(number), prompt, max_tokens)
            large.add(str(number), prompt, max_tokens)
    machine.run()
    large.run()
    for name, sequence in machine.sequences.items():
        assert sequence.token_ids == large.sequences[name].token_ids


@settings(max_examples=50, deadline=None)
@given(machines, st.lists(st.tuples(prompts, st.integers(1, 8)), min_size=2, max_size=8))
def test_first_tokens_come_in_the_order_of_arrival(
    machine: Machine, requests: list[tuple[list[int], int]]
) -> None:
    for number, (prompt, max_tokens) in enumerate(requests):
        if machine.pool.num_blocks_for(len(prompt) + max_tokens) <= machine.pool.num_blocks:
            machine.add(str(number), prompt, max_tokens)
    machine.run()
    admitted = [sequence.request_id for output in machine.outputs for sequence in output.admitted]
    assert admitted == list(machine.sequences)


def test_thousands_of_requests_go_through_a_tiny_pool() -> None:
    machine = Machine(num_blocks=6, block_size=4, max_num_seqs=4, budget=12)
    choose = random.Random(0)
    for number in range(2000):
        prefix = choose.choice(PREFIXES)
        rest = [choose.randrange(50) for _ in range(choose.randint(1, 6))]
        machine.add(str(number), [*prefix, *rest], choose.randint(1, 6))
    machine.run(most_steps=50_000)
    assert machine.pool.num_free == 6
    assert any(output.preempted for output in machine.outputs)
