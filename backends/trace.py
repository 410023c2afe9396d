"""Trace files: JSON lines, the header first; written from a recorder, read with validation.

    {"type":"header", …}
    {"type":"snapshot", "version":4711, …}     only where older records were dropped
    {"type":"state", …}                        the state at that moment, likewise
    {"type":"arrived", …}                      every retained record, in order
    …

Reading trusts nothing: every line is validated, lengths and the total are bounded, and an error
names its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from backends.errors import InvalidRequest
from backends.recorder import Entry, Moment, Recorder
from backends.records import SCHEMA_VERSION, AnyRecord, Snapshot, TraceHeader, decode_record, encode_record

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_TRACE_BYTES = 512 * 1024 * 1024


class TraceError(InvalidRequest):
    """A trace that cannot be read; the message begins with the number of the line at fault."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}", field="trace")
        self.line = line


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace as read. ``snapshot`` is where the records begin, when older ones were dropped."""

    header: TraceHeader
    snapshot: Snapshot | None
    records: list[AnyRecord]


def trace_lines(recorder: Recorder) -> Iterator[bytes]:
    """The whole retained trace, one line with its line break at a time.

    Raises ``InvalidRequest`` for an engine that has not started, since it has recorded nothing.
    """
    base, entries = recorder.history()
    header = base.header or next((e for e in entries if isinstance(e.record, TraceHeader)), None)
    if header is None:
        raise InvalidRequest(
            f"{recorder.backend} has not started yet, so nothing is recorded.", field="backend"
        )
    return _lines(header, base, entries)


def _lines(header: Entry, base: Moment, entries: list[Entry]) -> Iterator[bytes]:
    yield header.line + b"\n"
    if base.snapshot.version > 0:
        yield encode_record(base.snapshot) + b"\n"
        if base.state is not None:
            yield base.state.line + b"\n"
    for entry in entries:
        yield entry.line + b"\n"


def read_trace(
    lines: Iterable[bytes], *, max_line_bytes: int = MAX_LINE_BYTES, max_bytes: int = MAX_TRACE_BYTES
) -> Trace:
    """Parse a trace. Raises ``TraceError``."""
    header: TraceHeader | None = None
    snapshot: Snapshot | None = None
    records: list[AnyRecord] = []
    for number, record in _read_records(lines, max_line_bytes, max_bytes):
        if number == 1:
            header = _check_header(record)
        elif isinstance(record, Snapshot):
            if number != 2:
                raise TraceError(number, "a snapshot can only stand on line 2")
            snapshot = record
        else:
            records.append(record)
    if header is None:
        raise TraceError(1, "the trace is empty")
    return Trace(header=header, snapshot=snapshot, records=records)


def _check_header(record: AnyRecord) -> TraceHeader:
    if not isinstance(record, TraceHeader):
        raise TraceError(1, "a trace begins with a record of type 'header'")
    if record.schema_version != SCHEMA_VERSION:
        raise TraceError(1, f"schema version {record.schema_version}, but this reads {SCHEMA_VERSION}")
    return record


def _read_records(
    lines: Iterable[bytes], max_line_bytes: int, max_bytes: int
) -> Iterator[tuple[int, AnyRecord]]:
    """Number and record of each line, lengths checked before anything is parsed."""
    num_bytes = 0
    for number, line in enumerate(lines, start=1):
        num_bytes += len(line)
        if len(line) > max_line_bytes:
            raise TraceError(number, f"longer than {max_line_bytes:,} bytes")
        if num_bytes > max_bytes:
            raise TraceError(number, f"the trace is larger than {max_bytes:,} bytes")
        try:
            yield number, decode_record(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(number, str(error)) from None
