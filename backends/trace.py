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

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from backends.errors import InvalidRequest
from backends.recorder import Entry, Moment, Recorder
from backends.records import (
    SCHEMA_VERSION,
    AnyRecord,
    RequestArrived,
    Snapshot,
    StepRecord,
    TraceHeader,
    decode_record,
    encode_record,
    time_of,
)

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_TRACE_BYTES = 512 * 1024 * 1024
"""Also of what a compressed file becomes."""
PART_BYTES = 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
CANNOT_BE_UNPACKED = (EOFError, gzip.BadGzipFile, zlib.error)


class TraceError(InvalidRequest):
    """A trace that cannot be read; the message begins with the number of the line at fault."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}", field="trace")
        self.line = line


class TooLarge(InvalidRequest):
    """A file that is, or unpacked becomes, larger than what is read."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace as read. ``snapshot`` is where the records begin, when older ones were dropped."""

    header: TraceHeader
    snapshot: Snapshot | None
    records: list[AnyRecord]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of traces says of one."""

    header: TraceHeader
    duration: float
    """Seconds from where the records begin to the latest of them."""
    num_records: int
    num_requests: int
    num_steps: int


def trace_lines(recorder: Recorder) -> Iterator[bytes]:
    """The whole retained trace, one line with its line break at a time.

    Raises ``InvalidRequest`` for an engine that has not started, since it has recorded nothing.
    """
    base, entries = recorder.history()
    if _header_of(base, entries) is None:
        raise InvalidRequest(
            f"{recorder.backend} has not started yet, so nothing is recorded.", field="backend"
        )
    return lines_from(base, entries)


def _header_of(base: Moment, entries: list[Entry]) -> Entry | None:
    return base.header or next((e for e in entries if isinstance(e.record, TraceHeader)), None)


def lines_from(base: Moment, entries: list[Entry]) -> Iterator[bytes]:
    """The lines of a trace that goes on from a moment; one of the two must hold a header."""
    header = _header_of(base, entries)
    assert header is not None
    yield header.line + b"\n"
    if base.snapshot.version > 0:
        yield encode_record(base.snapshot) + b"\n"
        if base.state is not None:
            yield base.state.line + b"\n"
    for entry in entries:
        yield entry.line + b"\n"


def is_gzipped(path: Path) -> bool:
    """By its first bytes, whatever it is called. Raises ``OSError``."""
    with path.open("rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def check_size(path: Path, most: int = MAX_TRACE_BYTES) -> None:
    """Count before anything is parsed, which takes far longer. Raises ``OSError`` and ``TooLarge``; what
    cannot be unpacked is for ``file_lines`` to tell, with its line."""
    if (size := path.stat().st_size) > most:
        raise TooLarge(f"the file has {size:,} bytes; {most:,} is the limit")
    if not is_gzipped(path):
        return
    num_bytes = 0
    with gzip.open(path) as file, suppress(*CANNOT_BE_UNPACKED):
        while part := file.read(PART_BYTES):
            num_bytes += len(part)
            if num_bytes > most:
                raise TooLarge(f"unpacked it has more than {most:,} bytes, which is the limit")


def file_lines(path: Path) -> Iterator[bytes]:
    """The lines of a trace file, compressed or not, never more than one too long line at a time.

    Raises ``OSError``, and ``TraceError`` where the compression is broken off or wrong.
    """
    number = 0
    with gzip.open(path) if is_gzipped(path) else path.open("rb") as file:
        try:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield line
        except EOFError:
            raise TraceError(number + 1, "the compressed file ends too early: it was cut off") from None
        except CANNOT_BE_UNPACKED as error:
            raise TraceError(number + 1, f"the compressed file is damaged: {error}") from None


def read_trace(
    lines: Iterable[bytes], *, max_line_bytes: int = MAX_LINE_BYTES, max_bytes: int = MAX_TRACE_BYTES
) -> Trace:
    """Parse a trace. Raises ``TraceError``."""
    begin, *records = checked_records(lines, max_line_bytes=max_line_bytes, max_bytes=max_bytes)
    assert isinstance(begin, TraceHeader)
    snapshot = records[0] if records and isinstance(records[0], Snapshot) else None
    return Trace(header=begin, snapshot=snapshot, records=records if snapshot is None else records[1:])


def survey_trace(lines: Iterable[bytes], *, max_bytes: int = MAX_TRACE_BYTES) -> Survey:
    """Validate a trace and count what is in it, keeping none of it. Raises ``TraceError``."""
    records = checked_records(lines, max_bytes=max_bytes)
    header = next(records)
    assert isinstance(header, TraceHeader)
    begin = end = header.start_time
    num_records, num_requests, num_steps = 1, 0, 0
    for record in records:
        if isinstance(record, Snapshot):
            begin = end = record.time
        end = max(end, time_of(record))
        num_records += 1
        num_requests += isinstance(record, RequestArrived)
        num_steps += isinstance(record, StepRecord)
    return Survey(
        header=header,
        duration=end - begin,
        num_records=num_records,
        num_requests=num_requests,
        num_steps=num_steps,
    )


def checked_records(
    lines: Iterable[bytes], *, max_line_bytes: int = MAX_LINE_BYTES, max_bytes: int = MAX_TRACE_BYTES
) -> Iterator[AnyRecord]:
    """Every record, the header first, each where it may stand. Raises ``TraceError``."""
    number = 0
    for number, record in _read_records(lines, max_line_bytes, max_bytes):
        if number == 1:
            record = _check_header(record)
        elif isinstance(record, Snapshot) and number != 2:
            raise TraceError(number, "a snapshot can only stand on line 2")
        yield record
    if number == 0:
        raise TraceError(1, "the trace is empty")


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
