"""A trace file says what the recorder holds, and a bad one is refused with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backends.errors import InvalidRequest
from backends.recorder import Recorder
from backends.records import SCHEMA_VERSION, Snapshot, State, encode_record
from backends.snapshot import SnapshotBuilder
from backends.trace import TraceError, file_lines, read_trace, survey_trace, trace_lines
from tests import factories as make

HEADER = encode_record(make.header())
TOKEN = encode_record(make.token())


def test_a_trace_of_everything_is_the_header_and_every_record() -> None:
    recorder = Recorder("naive")
    records = [make.state(State.STARTING), make.header(), make.arrived(), make.token(), make.finished()]
    recorder.extend(records)

    trace = read_trace(trace_lines(recorder))

    assert trace.header == make.header()
    assert trace.snapshot is None
    assert trace.records == records


def test_a_truncated_trace_begins_with_a_snapshot_and_the_state() -> None:
    recorder = Recorder("naive", capacity=2)
    recorder.extend([make.header(), make.state(State.PAUSED), make.arrived(), make.token(), make.finished()])

    trace = read_trace(trace_lines(recorder))

    assert trace.snapshot == recorder.base().snapshot
    assert trace.records == [make.state(State.PAUSED), make.token(), make.finished()]
    builder = SnapshotBuilder.from_snapshot(trace.snapshot)
    for record in trace.records:
        builder.apply(record)
    head = recorder.head().snapshot
    assert builder.snapshot(head.version, head.time) == head


def test_lines_end_with_a_line_break_and_have_no_other() -> None:
    recorder = Recorder("naive")
    recorder.extend([make.header(), make.state(reason="two\nlines")])

    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in trace_lines(recorder))


def test_an_engine_that_never_started_has_no_trace() -> None:
    recorder = Recorder("naive")
    recorder.append(make.state(State.IDLE))

    with pytest.raises(InvalidRequest, match="naive has not started yet"):
        trace_lines(recorder)


@pytest.mark.parametrize(
    ("lines", "line", "problem"),
    [
        ([], 1, "empty"),
        ([TOKEN], 1, "begins with a record of type 'header'"),
        ([encode_record(make.header(schema_version=99))], 1, f"99, but this reads {SCHEMA_VERSION}"),
        ([HEADER, TOKEN[:-5]], 2, "truncated"),
        ([HEADER, TOKEN, b"\n"], 3, "truncated"),
        ([HEADER, b'{"type":"nonsense"}'], 2, r"'nonsense' - at `\$.type`"),
        ([HEADER, TOKEN.replace(b'"index":0', b'"index":-1')], 2, r"at `\$.index`"),
        ([HEADER, TOKEN.replace(b'"index":0', b'"index":"0"')], 2, r"at `\$.index`"),
        ([HEADER, TOKEN.replace(b'"index":0', b'"index":0,"__class__":"os"')], 2, "unknown field"),
        ([HEADER, TOKEN.replace(b'"r0"', b'"\xff\xfe"')], 2, "Invalid UTF-8"),
        ([HEADER.replace(b'"engine":{', b'"engine":{"x":' + b"[" * 100_000)], 1, "recursion"),
        (
            [HEADER, TOKEN, encode_record(Snapshot(version=1, time=0, next_step_id=0, requests=[]))],
            3,
            "line 2",
        ),
        ([HEADER, b" " * 1001], 2, "longer than 1,000 bytes"),
        ([HEADER, *[TOKEN] * 100], None, "larger than 5,000 bytes"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(lines: list[bytes], line: int | None, problem: str) -> None:
    with pytest.raises(TraceError, match=problem) as caught:
        read_trace(
            lines,
            max_line_bytes=200_000 if b"[[" in b"".join(lines) else 1000,
            max_bytes=5000 if line is None else 300_000,
        )

    assert caught.value.message.startswith(f"line {caught.value.line}: ")
    assert line is None or caught.value.line == line


# Files

LINES = [HEADER, encode_record(make.arrived(time=1.0)), encode_record(make.token(time=4.5))]
CONTENT = b"\n".join([*LINES, b""])


def test_a_survey_counts_what_a_file_holds_compressed_or_not(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(CONTENT)
    (tmp_path / "small").write_bytes(gzip.compress(CONTENT))

    plain, small = (survey_trace(file_lines(tmp_path / name)) for name in ("plain", "small"))

    assert plain == small
    assert (plain.num_records, plain.num_requests, plain.num_steps, plain.duration) == (3, 1, 0, 4.5)


def test_the_duration_of_a_trace_whose_beginning_was_dropped_counts_from_its_snapshot() -> None:
    snapshot = encode_record(Snapshot(version=9, time=100.0, next_step_id=0, requests=[]))
    assert survey_trace([HEADER, snapshot, encode_record(make.token(time=103.0))]).duration == 3.0


def test_a_compressed_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(gzip.compress(CONTENT)[:-12])
    with pytest.raises(TraceError, match="cut off"):
        survey_trace(file_lines(tmp_path / "cut"))


def test_a_compressed_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(CONTENT))
    content[-5] ^= 0xFF  # its length
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(TraceError, match="damaged"):
        survey_trace(file_lines(tmp_path / "bad"))


def test_a_small_file_that_would_become_huge_is_refused_before_it_is(tmp_path: Path) -> None:
    (tmp_path / "line").write_bytes(gzip.compress(HEADER + b"\n" + b" " * 20_000_000, compresslevel=1))
    with pytest.raises(TraceError, match=r"^line 2: longer than 4,194,304 bytes"):
        survey_trace(file_lines(tmp_path / "line"))

    (tmp_path / "lines").write_bytes(gzip.compress(HEADER + b"\n" + (LINES[1] + b"\n") * 100_000))
    with pytest.raises(TraceError, match="larger than 1,000,000 bytes"):
        survey_trace(file_lines(tmp_path / "lines"), max_bytes=1_000_000)
