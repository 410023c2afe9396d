"""A trace becomes a shipped file, or is refused: what lies there is never replaced by a worse one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from backends.records import EngineState, FinishReason, RequestArrived, RequestFinished, State, StepRecord
from backends.trace import Trace, TraceError, read_trace

MOST_BYTES = 200_000
"""Of a file as it is shipped."""
AS_ASKED = (FinishReason.LENGTH, FinishReason.STOP)


class NotShippable(Exception):
    """What was recorded is no recording to show."""


def write_recording(lines: bytes, path: Path) -> int:
    """Check, pack and put in its place at once, up to where the engine was stopped. Returns the file's
    size. Raises ``NotShippable``."""
    trace = check_lines(lines)
    kept = lines.splitlines(keepends=True)[: 1 + _end_of(trace)]
    packed = gzip.compress(b"".join(kept), mtime=0)  # the same records are the same file
    if len(packed) > MOST_BYTES:
        raise NotShippable(f"it has {len(packed):,} bytes; at most {MOST_BYTES:,} are shipped")
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(packed)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return len(packed)


def check_lines(lines: bytes) -> Trace:
    """Raises ``NotShippable``."""
    try:
        trace = read_trace(lines.splitlines(keepends=True))
    except TraceError as error:
        raise NotShippable(error.message) from None
    if problem := _problem_of(trace):
        raise NotShippable(problem)
    return trace


def _end_of(trace: Trace) -> int:
    """How many records there are until the engine says that it has been stopped; all, where it does not."""
    ends = [place for place, record in enumerate(trace.records) if isinstance(record, RequestFinished)]
    rest = enumerate(trace.records[ends[-1] :], start=ends[-1])
    stops = (
        place for place, record in rest if isinstance(record, EngineState) and record.state is State.IDLE
    )
    return next(stops, len(trace.records))


def _problem_of(trace: Trace) -> str | None:
    if trace.snapshot is not None:
        return "its beginning was dropped: more was recorded than a log keeps"
    if not any(isinstance(record, StepRecord) for record in trace.records):
        return "it has no step"
    asked = {record.request_id for record in trace.records if isinstance(record, RequestArrived)}
    ended = [record for record in trace.records if isinstance(record, RequestFinished)]
    if not asked:
        return "nothing was asked"
    if missing := asked - {record.request_id for record in ended}:
        return f"{len(missing)} of {len(asked)} requests never ended"
    if failed := [record for record in ended if record.reason not in AS_ASKED]:
        return f"a request ended with {failed[0].reason}: {failed[0].message}"
    return None
