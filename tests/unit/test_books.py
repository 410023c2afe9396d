"""The books balance where the records are right, and only there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.books import Apart, Balance, Books, books_of
from backends.paged.sequence import Sequence, Status
from backends.records import AnyRecord, FinishReason, Phase, ScheduledRow
from tests import factories as make
from tests.unit.paged.machine import Machine


def row(scheduled: int, computed: int, cached: int | None = 0, name: str = "a") -> ScheduledRow:
    return make.row(name, scheduled, computed, Phase.PREFILL, num_cached_tokens=cached)


def story(
    *rows: ScheduledRow | None,
    prompt: int,
    tokens: int,
    reason: FinishReason | None = FinishReason.LENGTH,
) -> list[AnyRecord]:
    """One request, a row a step; ``None`` is a step that preempts it."""
    records: list[AnyRecord] = [make.arrived("a", num_prompt_tokens=prompt)]
    for index, entry in enumerate(rows):
        preempted = ["a"] if entry is None else []
        records.append(make.step(index, [entry] if entry else [], preempted_ids=preempted))
    records += [make.token("a", index) for index in range(tokens)]
    if reason is not None:
        records.append(make.finished("a", reason=reason))
    return records


def test_a_prompt_is_computed_once_and_each_token_but_the_last() -> None:
    books = books_of(story(row(10, 0), row(1, 10), row(1, 11), prompt=10, tokens=3))

    assert books.balances
    assert books.total == Balance(
        num_requests=1,
        scheduled_tokens=12,
        prompt_tokens=10,
        cached_tokens=0,
        shared_tokens=0,
        output_tokens=3,
        recomputed_tokens=0,
    )


def test_what_the_prefix_cache_found_is_not_computed() -> None:
    books = books_of(story(row(2, 8, cached=8), row(1, 10), prompt=10, tokens=2))

    assert (books.balances, books.total.cached_tokens) == (True, 8)


def test_what_a_preemption_took_away_is_computed_again_but_for_what_the_cache_finds() -> None:
    books = books_of(story(row(10, 0), row(1, 10), None, row(4, 8, cached=8), prompt=10, tokens=3))

    assert (books.balances, books.total.recomputed_tokens, books.total.cached_tokens) == (True, 3, 0)


def test_preempted_again_while_it_recomputes_it_loses_what_it_has_then() -> None:
    books = books_of(story(row(10, 0), None, row(6, 0), None, row(6, 4), prompt=10, tokens=1))

    assert (books.balances, books.total.recomputed_tokens) == (True, 10 + 2)


def test_a_cache_that_knows_more_on_resuming_than_was_computed_counts_as_cached() -> None:
    books = books_of(story(row(4, 0), None, row(2, 8, cached=8), prompt=10, tokens=1))

    assert (books.balances, books.total.cached_tokens, books.total.recomputed_tokens) == (True, 4, 0)


def test_a_sample_that_forked_off_has_its_prompt_from_its_sibling() -> None:
    books = books_of(story(row(1, 10), row(1, 11), prompt=10, tokens=3))

    assert (books.balances, books.total.shared_tokens) == (True, 10)


@pytest.mark.parametrize(
    "wrong",
    [
        story(row(10, 0), row(1, 10), prompt=10, tokens=3),  # a row is missing
        story(row(10, 0), row(1, 10), row(1, 10), row(1, 11), prompt=10, tokens=3),  # one was run twice
        story(row(10, 0), row(4, 8), prompt=10, tokens=3),  # something was lost without a preemption
    ],
)
def test_a_record_too_few_or_too_many_shows(wrong: list[AnyRecord]) -> None:
    assert not books_of(wrong).balances


def test_a_surplus_does_not_hide_a_lack() -> None:
    short = story(row(10, 0), prompt=10, tokens=2)
    long = [
        make.arrived("b", num_prompt_tokens=10),
        make.step(9, [row(10, 0, name="b"), row(1, 10, name="b")]),
        make.token("b"),
        make.finished("b"),
    ]
    books = books_of([*short, *long])

    assert books.total.balances
    assert not books.balances


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (FinishReason.STOP, Apart.STOPPED),
        (FinishReason.ABORT, Apart.ABORTED),
        (FinishReason.ERROR, Apart.FAILED),
        (None, Apart.IN_FLIGHT),
    ],
)
def test_who_did_not_run_to_its_limit_is_told_apart(reason: FinishReason | None, why: Apart) -> None:
    books = books_of(story(row(10, 0), row(1, 10), prompt=10, tokens=1, reason=reason))

    assert (books.settled, books.apart["a"][0]) == ({}, why)
    assert books.apart["a"][1].difference == 1
    assert books.scheduled_tokens == 11


def test_an_engine_that_does_not_tell_what_was_cached_is_not_guessed_about() -> None:
    hidden = story(row(10, 0, cached=None), prompt=10, tokens=1)
    without_rows = story(prompt=10, tokens=1)

    assert books_of(hidden).apart["a"][0] is Apart.NOT_EXPOSED
    assert books_of(without_rows).apart["a"][0] is Apart.NOT_EXPOSED


def test_tokens_of_requests_from_before_the_trace_are_counted_by_themselves() -> None:
    books = books_of([make.step(0, [row(1, 30, name="older")])])

    assert (books.unannounced_tokens, books.scheduled_tokens) == (1, 1)


def test_the_servers_own_counts_are_used() -> None:
    records = story(row(10, 0), row(1, 10), prompt=99, tokens=1)
    records[-1] = make.finished("a", num_prompt_tokens=10, num_output_tokens=2)

    assert books_of(records).balances


# Over the scheduler of the paged engine, whatever happens to it


class Recorded(Machine):
    """A machine that keeps the records an engine would have emitted."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**sizes)
        self.records: list[AnyRecord] = []
        self._ended: list[AnyRecord] = []

    def add(self, name: str, prompt: list[int] | int, max_tokens: int = 4) -> Sequence:
        sequence = super().add(name, prompt, max_tokens)
        self.records.append(make.arrived(name, num_prompt_tokens=sequence.num_prompt_tokens))
        return sequence

    def step(self) -> str:
        picture = super().step()
        output = self.outputs[-1]
        rows = [
            make.row(
                entry.sequence.request_id,
                entry.num_scheduled_tokens,
                entry.num_computed_tokens,
                num_cached_tokens=entry.num_cached_tokens,
            )
            for entry in output.rows
        ]
        preempted = [sequence.request_id for sequence in output.preempted]
        self.records.append(make.step(len(self.outputs), rows, preempted_ids=preempted))
        self.records += self._ended
        self._ended = []
        return picture

    def abort(self, name: str) -> None:
        super().abort(name)
        self.records.append(make.finished(name, reason=FinishReason.ABORT))

    def _append(self, sequence: Sequence) -> None:
        super()._append(sequence)
        self._ended.append(make.token(sequence.request_id, sequence.num_output_tokens - 1))
        if sequence.status is Status.FINISHED:
            self._ended.append(make.finished(sequence.request_id))


machines = st.builds(
    Recorded,
    num_blocks=st.integers(6, 16),
    block_size=st.sampled_from([1, 2, 4]),
    max_num_seqs=st.integers(1, 6),
    budget=st.integers(1, 20),
)
prompts = st.lists(st.integers(0, 1), min_size=1, max_size=12)
events = st.one_of(
    st.tuples(st.just("add"), prompts, st.integers(1, 10)),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("abort"), st.integers(0, 20)),
)


def play(machine: Recorded, script: list[tuple]) -> Books:
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
    machine.run()
    return books_of(machine.records)


@settings(max_examples=200, deadline=None)
@given(machines, st.lists(events, max_size=40))
def test_the_books_of_the_paged_scheduler_balance_whatever_happens(
    machine: Recorded, script: list[tuple]
) -> None:
    books = play(machine, script)

    assert books.balances
    assert {why for why, _ in books.apart.values()} <= {Apart.ABORTED}
    assert books.scheduled_tokens == sum(output.num_tokens for output in machine.outputs)


def test_such_books_have_something_in_every_term() -> None:
    machine = Recorded(num_blocks=8, block_size=2, max_num_seqs=4, budget=6)
    books = play(machine, [("add", [1, 0, 1, 1, number % 2], 9) for number in range(6)])
    total = books.total

    assert books.balances
    assert min(total.cached_tokens, total.recomputed_tokens, total.output_tokens) > 0
    assert total.output_tokens == 6 * 9
