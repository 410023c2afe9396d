"""What one engine did with a workload: the figures of a race's table and the lanes of its picture.

A pure function of the run's records. They hold other people's requests as well: every figure here
is of the run's own, and where that cannot be told apart it is ``None``, "not exposed".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from backends.metrics import RequestTimeline, Summary, TimelineReducer, latency_summary
from backends.records import (
    AnyRecord,
    Exposure,
    FinishReason,
    RequestArrived,
    StepRecord,
    TraceHeader,
)
from backends.workloads.kv_waste import kv_waste
from backends.workloads.run import Run

MOST_TOKEN_TIMES = 512
"""In one lane: of more, every second is left out, or every third …, never the first and the last."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What ran: a race between two dtypes must say so."""

    model: str
    dtype: str
    device: str
    kv: Exposure | None
    """How it knows its KV cache: where it exposes it and there is no waste, it keeps none."""
    kv_note: str | None
    """What it says of it."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the time axis: seconds since the run began, ``None`` where it did not happen."""

    student: int
    """Its place in the plan, from 0: the same on every engine."""
    arrived: float | None
    """``None``: the engine refused it."""
    first_scheduled: float | None
    token_times: list[float]
    num_tokens: int
    max_tokens: int | None
    preempted: list[tuple[float, float | None]]
    """From losing its blocks to being scheduled again."""
    ended: float | None
    reason: FinishReason | None
    error: str | None


class RaceResult(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds, the rest in tokens or requests."""

    engine: EngineFacts | None
    num_requests: int
    num_complete: int
    num_short: int
    """Of these, the ones that the model ended before their limit."""
    num_failed: int
    error: str | None
    """What went wrong first."""
    num_others: int
    """Other people's requests that the engine had meanwhile: they took time from these."""
    finish_time: float | None
    """From the start to the end of the last request."""
    ttft: Summary | None
    itl: Summary | None
    num_zero_gaps: int
    output_tokens: int
    tokens_per_second: float | None
    kv_waste: float | None
    padding_tokens: int | None
    recomputed_tokens: int | None
    finished_rows: int | None
    """Rows computed for nothing: requests that were done, kept in a static batch, step by step."""
    cached_tokens: int | None
    """Prompt tokens that prefix caching found, a preempted request's once."""
    preemptions: int | None
    lanes: list[Lane]


def summary(run: Run) -> RaceResult:
    """Of a run that has ended, or as far as it has got."""
    own = frozenset(run.request_ids)
    reducer = TimelineReducer()
    for record in run.records:
        reducer.apply(record)
    timelines = [reducer.timelines.get(name) for name in run.request_ids]
    known = [timeline for timeline in timelines if timeline is not None]
    latency = latency_summary(known)
    steps = _steps_of(run, own)
    complete = [timeline for timeline in known if timeline.is_complete]
    ends = [timeline.finished.time for timeline in known if timeline.finished is not None]
    return RaceResult(
        engine=_facts(run.header),
        num_requests=len(run.request_ids),
        num_complete=len(complete),
        num_short=sum(timeline.num_output_tokens < timeline.arrived.max_tokens for timeline in complete),
        num_failed=_num_failed(run, known),
        error=next((error.message for error in run.errors.values()), None),
        num_others=_num_others(run.records, own),
        finish_time=max(ends) - run.start_time if ends else None,
        ttft=latency.ttft,
        itl=latency.itl,
        num_zero_gaps=latency.num_zero_gaps,
        output_tokens=sum(timeline.num_output_tokens for timeline in known),
        tokens_per_second=latency.tokens_per_second,
        kv_waste=kv_waste(run.records, own, None if run.header is None else run.header.engine.block_size),
        padding_tokens=None if steps is None else _padding(steps, own),
        recomputed_tokens=None if steps is None else sum(t.work.recomputed_tokens for t in known),
        finished_rows=None if steps is None else sum(t.work.finished_rows for t in known),
        cached_tokens=None if steps is None else _cached(steps, own),
        preemptions=None if steps is None else sum(len(t.preemption_times) for t in known),
        lanes=[
            _lane(run, student, name, timeline)
            for student, (name, timeline) in enumerate(zip(run.request_ids, timelines, strict=True))
        ],
    )


def _facts(header: TraceHeader | None) -> EngineFacts | None:
    if header is None:
        return None
    return EngineFacts(
        model=header.model,
        dtype=header.dtype,
        device=header.device,
        kv=header.measured.get("kv"),
        kv_note=header.notes.get("kv"),
    )


def _steps_of(run: Run, own: frozenset[str]) -> list[StepRecord] | None:
    """The steps that had one of these requests in them; ``None`` where the engine shows none."""
    if run.header is not None and run.header.measured.get("batch") is Exposure.NOT_EXPOSED:
        return None
    steps = [record for record in run.records if isinstance(record, StepRecord)]
    return [step for step in steps if any(row.request_id in own for row in step.rows)]


def _num_failed(run: Run, known: Sequence[RequestTimeline]) -> int:
    """Refused before they were on the record, or failed there."""
    failed = {
        timeline.arrived.request_id
        for timeline in known
        if timeline.finished is not None and timeline.finished.reason is FinishReason.ERROR
    }
    return len(failed | run.errors.keys())


def _num_others(records: Sequence[AnyRecord], own: frozenset[str]) -> int:
    others: set[str] = set()
    for record in records:
        match record:
            case RequestArrived():
                others.add(record.request_id)
            case StepRecord():
                others.update(row.request_id for row in record.rows)
            case _:
                pass
    return len(others - own)


def _padding(steps: Sequence[StepRecord], own: frozenset[str]) -> int | None:
    """Of the rows of these requests; ``None`` where an engine does not say, or not whose it is."""
    total = 0
    for step in steps:
        padding = _padding_of(step, own)
        if padding is None:
            return None
        total += padding
    return total


def _padding_of(step: StepRecord, own: frozenset[str]) -> int | None:
    if not step.num_padding_tokens or all(row.request_id in own for row in step.rows):
        return step.num_padding_tokens
    width = step.input_shape[-1] if step.input_shape else 0
    padding = {row.request_id: width - row.num_scheduled_tokens for row in step.rows}
    if sum(padding.values()) != step.num_padding_tokens:
        return None
    return sum(num_tokens for name, num_tokens in padding.items() if name in own)


def _cached(steps: Sequence[StepRecord], own: frozenset[str]) -> int | None:
    """What the first row of each request tells; ``None`` for an engine that caches no prefixes."""
    first: dict[str, int | None] = {}
    for step in steps:
        for row in step.rows:
            if row.request_id in own:
                first.setdefault(row.request_id, row.num_cached_tokens)
    told = [num_tokens for num_tokens in first.values() if num_tokens is not None]
    return sum(told) if told else None


def _lane(run: Run, student: int, name: str, timeline: RequestTimeline | None) -> Lane:
    error = run.errors.get(name)
    message = None if error is None else error.message
    if timeline is None:
        return Lane(
            student=student,
            arrived=None,
            first_scheduled=None,
            token_times=[],
            num_tokens=0,
            max_tokens=None,
            preempted=[],
            ended=None,
            reason=FinishReason.ERROR if error else None,
            error=message,
        )

    def since_start(time: float) -> float:
        return round(time - run.start_time, 4)

    def maybe(time: float | None) -> float | None:
        return None if time is None else since_start(time)

    resumed: list[float | None] = [*timeline.resume_times]
    resumed += [None] * (len(timeline.preemption_times) - len(resumed))
    finished = timeline.finished
    return Lane(
        student=student,
        arrived=since_start(timeline.arrived.time),
        first_scheduled=maybe(timeline.first_scheduled_time),
        token_times=[since_start(time) for time in thinned(timeline.token_times, MOST_TOKEN_TIMES)],
        num_tokens=timeline.num_output_tokens,
        max_tokens=timeline.arrived.max_tokens,
        preempted=[
            (since_start(start), maybe(end))
            for start, end in zip(timeline.preemption_times, resumed, strict=True)
        ],
        ended=None if finished is None else since_start(finished.time),
        reason=None if finished is None else finished.reason,
        error=message or (None if finished is None else finished.message),
    )


def thinned(times: Sequence[float], most: int) -> list[float]:
    """At most so many of them, evenly left out; the first and the last stay."""
    if len(times) <= most:
        return list(times)
    every = -(-(len(times) - 1) // (most - 1))
    return [*times[:-1:every], times[-1]]
