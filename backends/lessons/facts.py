"""Records of a run → the facts that lessons teach. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from backends.metrics import RequestTimeline, timelines_of
from backends.records import AnyRecord, RequestFinished, ScheduledRow, StepRecord, TraceHeader
from backends.workloads.run import Run


def steps_of(run: Run) -> list[StepRecord]:
    """The steps that had a row of the run's requests."""
    own = set(run.request_ids)
    return [
        record
        for record in run.records
        if isinstance(record, StepRecord) and any(row.request_id in own for row in record.rows)
    ]


def rows_of(run: Run, request_id: str) -> list[ScheduledRow]:
    """One request's part of each step that it was in."""
    return [row for step in steps_of(run) for row in step.rows if row.request_id == request_id]


def timelines(run: Run, header: TraceHeader | None = None) -> list[RequestTimeline]:
    """One a request, in the order of the plan. ``header`` tells how large a block is."""
    records: list[AnyRecord] = [*([header] if header else []), *run.records]
    by_id = {timeline.arrived.request_id: timeline for timeline in timelines_of(records)}
    return [by_id[request_id] for request_id in run.request_ids]


def width(step: StepRecord) -> int:
    """Tokens in each row of what the model saw."""
    assert step.input_shape is not None, "an engine of ours tells its shape"
    return step.input_shape[-1]


def tokens_scheduled(steps: Sequence[StepRecord]) -> int:
    """Tokens that went through the model, padding aside: ΣL for an engine without a cache."""
    return sum(row.num_scheduled_tokens for step in steps for row in step.rows)


def most_rows(steps: Sequence[StepRecord]) -> int:
    """Of the step that had most."""
    return max(len(step.rows) for step in steps)


def attention_pairs(steps: Sequence[StepRecord]) -> int:
    """Query × key pairs: ΣL² for an engine without a cache."""
    pairs = [step.attention_pairs for step in steps if step.attention_pairs is not None]
    assert len(pairs) == len(steps), "an engine of ours tells its pairs"
    return sum(pairs)


def known(value: float | None) -> float:
    """A latency of a request that ran to its end, which has one."""
    assert value is not None, "the request has not run to its end"
    return value


def num_finished(run: Run) -> int:
    own = set(run.request_ids)
    return sum(isinstance(record, RequestFinished) and record.request_id in own for record in run.records)
