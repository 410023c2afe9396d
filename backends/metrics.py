"""Records → timelines → latencies and waste. Pure: nothing here is stored in a record.

    arrived ──queue time──► first scheduled ──► token 0 ──ITL──► token 1 ──ITL──► … last token
    └────────────────TTFT─────────────────────────┘                               │
    └────────────────E2E──────────────────────────────────────────────────────────┘

``TimelineReducer`` takes one record at a time; ``timelines_of`` is the same over a whole trace.
All values are seconds, tokens or query × key pairs.

Where a server says at the end how many tokens it made (``usage``), that count is used: TPOT, tokens
per second and all sums of tokens are right even where what came was counted in chunks. ITL stays the
gap between two arrivals, since nobody knows when the tokens within one chunk were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Self

import msgspec

from backends.records import (
    AnyRecord,
    FinishReason,
    KVDelta,
    ModelShape,
    Phase,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    StepRecord,
    TokenEmitted,
    TraceHeader,
)
from backends.snapshot import attention_pairs


class Work(msgspec.Struct, kw_only=True):
    """What was computed, and how much of it was for nothing."""

    tokens_computed: int = 0
    """Tokens that went through the model; without a cache this is ΣL over the steps."""
    recomputed_tokens: int = 0
    """The part of them that had been computed, or found in the cache, in an earlier step."""
    finished_rows: int = 0
    """Rows of requests that were done, kept in a static batch: one for each step."""
    attention_pairs: int = 0
    """Query × key pairs; ΣL² without a cache."""
    cached_pairs: int = 0
    """The pairs if only the newest token had been a query in each step: ΣL, L being the length
    of the sequence. With a cache the decode steps cost just this."""

    def add(self, row: ScheduledRow, num_known_tokens: int) -> None:
        """Count one row of a request of which ``num_known_tokens`` were computed or cached before."""
        length = row.num_computed_tokens + row.num_scheduled_tokens
        self.tokens_computed += row.num_scheduled_tokens
        self.attention_pairs += attention_pairs(row)
        self.cached_pairs += length
        if row.phase is Phase.FINISHED:
            self.finished_rows += 1
        else:
            new = max(0, length - max(num_known_tokens, row.num_computed_tokens))
            self.recomputed_tokens += row.num_scheduled_tokens - new

    def multiply_adds(self, shape: ModelShape) -> tuple[int, int]:
        """``attention_pairs`` and ``cached_pairs``, each times hidden size and layers."""
        size = shape.hidden_size * shape.num_layers
        return self.attention_pairs * size, self.cached_pairs * size


class RequestTimeline(msgspec.Struct, kw_only=True):
    """The life of one request, as far as it has got."""

    arrived: RequestArrived
    first_scheduled_time: float | None = None
    token_times: list[float] = []
    preemption_times: list[float] = []
    resume_times: list[float] = []
    """When it was scheduled again, after each preemption."""
    finished: RequestFinished | None = None
    work: Work = msgspec.field(default_factory=Work)
    num_known_tokens: int = 0
    """Length of the sequence up to which tokens were computed or found in the cache."""
    num_blocks: int = 0
    reserved_slots: int | None = None
    """Most KV slots set aside for it at one time, used or not."""
    filled_slots: int | None = None
    """Most KV slots that held K and V at one time."""

    @property
    def is_complete(self) -> bool:
        """It ran to its end: neither aborted nor failed."""
        return self.finished is not None and self.finished.reason in (FinishReason.STOP, FinishReason.LENGTH)

    @property
    def num_prompt_tokens(self) -> int | None:
        """As its server counted at the end, else as counted on arrival."""
        if self.finished is not None and self.finished.num_prompt_tokens is not None:
            return self.finished.num_prompt_tokens
        return self.arrived.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        """As its server counted at the end, else those that came so far."""
        if self.finished is not None and self.finished.num_output_tokens is not None:
            return self.finished.num_output_tokens
        return len(self.token_times)

    @property
    def queue_time(self) -> float | None:
        """Arrival to first scheduled."""
        return None if self.first_scheduled_time is None else self.first_scheduled_time - self.arrived.time

    @property
    def ttft(self) -> float | None:
        """Arrival to first token, waiting included."""
        return self.token_times[0] - self.arrived.time if self.token_times else None

    @property
    def prefill_time(self) -> float | None:
        """First scheduled to first token; preempted before that, the wait is in it."""
        if self.first_scheduled_time is None or not self.token_times:
            return None
        return self.token_times[0] - self.first_scheduled_time

    @property
    def decode_time(self) -> float | None:
        """First to last token so far."""
        return self.token_times[-1] - self.token_times[0] if self.token_times else None

    @property
    def itl(self) -> list[float]:
        """Gaps between consecutive arrivals, zeros kept: n - 1 values where each token came by itself."""
        return [later - earlier for earlier, later in pairwise(self.token_times)]

    @property
    def tpot(self) -> float | None:
        """(last - first token) / (n - 1) over the tokens so far; undefined for n = 1, and where all
        came at once."""
        if not self.token_times or self.num_output_tokens < 2:
            return None
        duration = self.token_times[-1] - self.token_times[0]
        return duration / (self.num_output_tokens - 1) if duration > 0 else None

    @property
    def e2e(self) -> float | None:
        """Arrival to last token, once no more will come."""
        if self.finished is None or not self.token_times:
            return None
        return self.token_times[-1] - self.arrived.time

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens so far over the time from arrival to the last of them."""
        if not self.token_times or self.token_times[-1] <= self.arrived.time:
            return None
        return self.num_output_tokens / (self.token_times[-1] - self.arrived.time)


class TimelineReducer:
    """Timelines and totals after the records applied so far; O(record) for each."""

    def __init__(self) -> None:
        self.timelines: dict[str, RequestTimeline] = {}
        self.total = Work()
        self.padding_tokens: int | None = None
        """``None`` until an engine has said how many there were."""
        self._block_size: int | None = None

    def apply(self, record: AnyRecord) -> None:
        match record:
            case TraceHeader():
                self._block_size = record.engine.block_size
            case RequestArrived():
                self.timelines[record.request_id] = RequestTimeline(arrived=record)
            case StepRecord():
                self._step(record)
            case TokenEmitted() if record.request_id in self.timelines:
                self.timelines[record.request_id].token_times.append(record.time)
            case RequestFinished() if record.request_id in self.timelines:
                self.timelines[record.request_id].finished = record
            case _:
                pass

    def forget(self, request_id: str) -> None:
        """Drop the timeline of one request; the totals keep what it cost."""
        self.timelines.pop(request_id, None)

    def _step(self, step: StepRecord) -> None:
        if step.num_padding_tokens is not None:
            self.padding_tokens = (self.padding_tokens or 0) + step.num_padding_tokens
        for row in step.rows:
            timeline = self.timelines.get(row.request_id)
            if timeline is None:  # it arrived before the trace begins
                self.total.add(row, row.num_computed_tokens)
                continue
            if timeline.first_scheduled_time is None:
                timeline.first_scheduled_time = step.start_time
            if len(timeline.resume_times) < len(timeline.preemption_times):
                timeline.resume_times.append(step.start_time)
            self.total.add(row, timeline.num_known_tokens)
            timeline.work.add(row, timeline.num_known_tokens)
            length = row.num_computed_tokens + row.num_scheduled_tokens
            timeline.num_known_tokens = max(timeline.num_known_tokens, length)
        for request_id in step.preempted_ids:
            if request_id in self.timelines:
                self.timelines[request_id].preemption_times.append(step.start_time)
        if step.kv is not None:
            self._kv(step.kv)

    def _kv(self, kv: KVDelta) -> None:
        for request_id in kv.taken.keys() | kv.given_back.keys():
            if (timeline := self.timelines.get(request_id)) and self._block_size is not None:
                taken, given_back = kv.taken.get(request_id, []), kv.given_back.get(request_id, [])
                timeline.num_blocks += len(taken)
                timeline.reserved_slots = _most(
                    timeline.reserved_slots, timeline.num_blocks * self._block_size
                )
                timeline.num_blocks -= len(given_back)
        for request_id, slots in kv.reserved_slots.items():
            if timeline := self.timelines.get(request_id):
                timeline.reserved_slots = _most(timeline.reserved_slots, slots)
        for request_id, slots in kv.filled_slots.items():
            if timeline := self.timelines.get(request_id):
                timeline.filled_slots = _most(timeline.filled_slots, slots)


def _most(known: int | None, value: int) -> int:
    return value if known is None else max(known, value)


def timelines_of(records: Iterable[AnyRecord]) -> list[RequestTimeline]:
    """The timeline of every request that arrives in ``records``, in order of arrival."""
    reducer = TimelineReducer()
    for record in records:
        reducer.apply(record)
    return list(reducer.timelines.values())


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution in five numbers."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """``None`` for no values: there is nothing to say."""
        if not values:
            return None
        ordered = sorted(values)
        p50, p95, p99 = (percentile(ordered, q) for q in (50, 95, 99))
        return cls(count=len(ordered), mean=sum(ordered) / len(ordered), p50=p50, p95=p95, p99=p99)


def percentile(ordered: Sequence[float], q: float) -> float:
    """The ``q``-th percentile of sorted values, linear between the two nearest ranks."""
    position = (len(ordered) - 1) * q / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


class LatencySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies over many requests. TPOT and E2E are of those that ran to their end."""

    queue_time: Summary | None
    ttft: Summary | None
    itl: Summary | None
    num_zero_gaps: int
    """Tokens that came in one delivery with the one before: counted in ITL, and said here."""
    tpot: Summary | None
    e2e: Summary | None
    tokens_per_second: float | None
    """All tokens over the time from the first arrival to the last token."""


def latency_summary(timelines: Sequence[RequestTimeline]) -> LatencySummary:
    gaps = [gap for timeline in timelines for gap in timeline.itl]
    complete = [timeline for timeline in timelines if timeline.is_complete]
    return LatencySummary(
        queue_time=Summary.of(_known(timeline.queue_time for timeline in timelines)),
        ttft=Summary.of(_known(timeline.ttft for timeline in timelines)),
        itl=Summary.of(gaps),
        num_zero_gaps=gaps.count(0),
        tpot=Summary.of(_known(timeline.tpot for timeline in complete)),
        e2e=Summary.of(_known(timeline.e2e for timeline in complete)),
        tokens_per_second=_throughput(timelines),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _throughput(timelines: Sequence[RequestTimeline]) -> float | None:
    ends = [timeline.token_times[-1] for timeline in timelines if timeline.token_times]
    if not ends:
        return None
    duration = max(ends) - min(timeline.arrived.time for timeline in timelines)
    num_tokens = sum(timeline.num_output_tokens for timeline in timelines)
    return num_tokens / duration if duration > 0 else None
