"""Decides, before every step, which tokens of which sequences are computed. Integers only.

There is no prefill phase and no decode phase: each sequence has tokens without K and V
(``num_new_tokens``), and a step gives it some of them, within the token budget. Those that run come
first, in order of arrival; what is left of the budget admits waiting ones::

    budget 8     A (decode) 1 │ B (decode) 1 │ C (prompt of 11) 6 ........ step k
                 A          1 │ B          1 │ C                5 │ D 1 .. step k+1

When the pool is out of blocks, the latest arrival that runs is preempted: its blocks are taken back
and it starts again later (by recompute). The earliest can always go on, so all of them end.

vLLM: ``vllm.v1.core.sched.scheduler.Scheduler``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from backends.paged.block_pool import BlockPool
from backends.paged.sequence import Sequence, Status


@dataclass(frozen=True)
class ScheduledSequence:
    """A sequence's part of a step."""

    sequence: Sequence
    num_scheduled_tokens: int
    num_computed_tokens: int
    """Before the step."""
    num_cached_tokens: int
    """Found by prefix caching, in the step that admits it; else 0."""
    samples: bool
    """The step reaches the last token, so the next one can be chosen."""

    @property
    def is_prefill(self) -> bool:
        """Are prompt tokens computed, or those of a preempted text again?"""
        return self.num_scheduled_tokens > 1 or self.num_computed_tokens < self.sequence.num_prompt_tokens


@dataclass
class SchedulerOutput:
    """One step, decided but not run."""

    rows: list[ScheduledSequence] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Blocks to copy before the step, source and target (copy on write)."""
    num_tokens: int = 0
    """Scheduled in all rows: at most the token budget."""


class Scheduler:
    """First come, first served; continuous batching, chunked prefill, preemption by recompute."""

    def __init__(self, pool: BlockPool, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < 1:
            raise ValueError(
                f"Got {max_num_seqs = } and {max_num_batched_tokens = } but both must be at least 1"
            )
        self.pool = pool
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    # Requests

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Its whole text must fit the pool when it is alone in it."""
        assert self.pool.num_blocks_for(sequence.num_tokens + 1) <= self.pool.num_blocks
        self.waiting.append(sequence)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Run ``child`` beside ``parent``, sharing what ``parent`` has computed, in a place that was
        kept for it if there was one."""
        parent.num_forks = max(0, parent.num_forks - 1)
        self.pool.fork(parent, child)
        child.num_computed_tokens = parent.num_computed_tokens
        child.status = Status.RUNNING
        child.was_scheduled = True
        self.running.append(child)

    def finish(self, sequence: Sequence) -> None:
        """It is done, or nobody wants it any more, wherever it is. Its blocks are free at once."""
        if sequence.status is Status.RUNNING:
            self.running.remove(sequence)
        elif sequence.status in (Status.WAITING, Status.PREEMPTED):
            self.waiting.remove(sequence)
        self.pool.release(sequence)
        sequence.status = Status.FINISHED

    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def sequences(self) -> Iterator[Sequence]:
        """All that have not finished."""
        yield from self.running
        yield from self.waiting

    # A step

    def schedule(self) -> SchedulerOutput:
        """Choose the tokens of the next step and give their sequences the blocks for them."""
        output = SchedulerOutput()
        self._schedule_running(output)
        if not output.preempted:  # else those waiting would take what was just freed
            self._admit_waiting(output)
        return output

    def update(self, output: SchedulerOutput) -> None:
        """The step was run: its tokens are computed, and blocks that became full can be found.

        Not before: a block must not be found while its K and V are still to come.
        """
        for row in output.rows:
            sequence = row.sequence
            sequence.num_computed_tokens = row.num_computed_tokens + row.num_scheduled_tokens
            self.pool.cache_full_blocks(sequence, row.num_computed_tokens)

    def _schedule_running(self, output: SchedulerOutput) -> None:
        index = 0
        while index < len(self.running) and output.num_tokens < self.max_num_batched_tokens:
            sequence = self.running[index]
            num_scheduled = min(sequence.num_new_tokens, self.max_num_batched_tokens - output.num_tokens)
            if self._make_room(sequence, sequence.num_computed_tokens + num_scheduled, output):
                self._schedule(sequence, num_scheduled, 0, output)
                index += 1

    def _make_room(self, sequence: Sequence, num_tokens: int, output: SchedulerOutput) -> bool:
        """Preempt from the end until ``sequence`` can grow. False: it was preempted itself."""
        while not self.pool.can_grow(sequence, num_tokens):
            victim = self.running.pop()
            self._preempt(victim, output)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, output: SchedulerOutput) -> None:
        self.pool.release(sequence)
        sequence.num_computed_tokens = sequence.num_cached_tokens = 0
        sequence.status = Status.PREEMPTED
        sequence.num_preemptions += 1
        self.waiting.appendleft(sequence)
        output.preempted.append(sequence)

    def _admit_waiting(self, output: SchedulerOutput) -> None:
        num_places = sum(sequence.num_places for sequence in self.running)
        while self.waiting and num_places + self.waiting[0].num_places <= self.max_num_seqs:
            num_places += self.waiting[0].num_places
            budget = self.max_num_batched_tokens - output.num_tokens
            if budget == 0 or not self._admit(self.waiting[0], budget, output):
                return

    def _admit(self, sequence: Sequence, budget: int, output: SchedulerOutput) -> bool:
        """False: there are not blocks enough, and whoever is behind it waits as well."""
        cached = self.pool.find_cached(sequence)
        num_cached = len(cached) * self.pool.block_size
        num_scheduled = min(sequence.num_tokens - num_cached, budget)
        if not self.pool.can_admit(cached, num_cached + num_scheduled):
            return False
        self.waiting.popleft()
        self.pool.reuse(sequence, cached)
        sequence.status = Status.RUNNING
        self.running.append(sequence)
        if not sequence.was_scheduled:
            sequence.was_scheduled = True
            output.admitted.append(sequence)
        self._schedule(sequence, num_scheduled, num_cached, output)
        return True

    def _schedule(
        self, sequence: Sequence, num_scheduled: int, num_cached: int, output: SchedulerOutput
    ) -> None:
        num_computed = sequence.num_computed_tokens
        output.copies += self.pool.grow(sequence, num_computed + num_scheduled)
        samples = num_computed + num_scheduled == sequence.num_tokens
        output.rows.append(ScheduledSequence(sequence, num_scheduled, num_computed, num_cached, samples))
        output.num_tokens += num_scheduled
