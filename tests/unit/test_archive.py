"""What engines record is in files that can be read at any moment; a disk that fails stops nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from backends.archive import Archive, Limits
from backends.recorder import Recorder
from backends.records import State
from backends.snapshot import SnapshotBuilder
from backends.trace import Trace, TraceError, file_lines, read_trace
from tests import factories as make

QUICK = Limits(write_interval=0, retry_interval=0)


def traces_in(folder: Path) -> list[Trace]:
    """Oldest first. Files come and go while we look, and are empty for a moment."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        with suppress(FileNotFoundError, TraceError):
            found.append(read_trace(file_lines(path)))
    return found


def num_written(folder: Path) -> int:
    """Records that the files stand for."""
    return max((begin_of(trace) + len(trace.records) for trace in traces_in(folder)), default=0)


def begin_of(trace: Trace) -> int:
    return 0 if trace.snapshot is None else trace.snapshot.version


async def until(done: Callable[[], bool]) -> None:
    """Writing is in a thread of its own, which tells nobody."""
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


async def test_a_file_holds_every_record_while_the_server_runs(tmp_path: Path) -> None:
    recorder = Recorder("naive")
    archive = Archive(tmp_path, [recorder], QUICK)
    archive.start()
    recorder.append(make.state(State.STARTING))
    await asyncio.sleep(0)
    assert list(tmp_path.iterdir()) == [], "without a header there is nothing to read"

    records = [make.state(State.STARTING), make.header(), make.arrived(), make.token()]
    recorder.extend(records[1:])
    await until(lambda: num_written(tmp_path) == len(records))
    recorder.append(make.finished())
    await archive.close()

    (trace,) = traces_in(tmp_path)
    assert trace.records == [*records, make.finished()]
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["naive"]


async def test_a_large_file_is_followed_by_one_that_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    recorder = Recorder("naive")
    archive = Archive(tmp_path, [recorder], Limits(file_bytes=1, files_kept=2, write_interval=0))
    archive.start()
    recorder.append(make.header())
    for number in range(5):
        recorder.extend([make.arrived(f"r{number}", time=number), make.token(f"r{number}", time=number)])
        await until(lambda: num_written(tmp_path) == recorder.version)
    await archive.close()

    assert len(list(tmp_path.iterdir())) == 2
    last = max(traces_in(tmp_path), key=begin_of)
    assert last.snapshot is not None
    builder = SnapshotBuilder.from_snapshot(last.snapshot)
    for record in last.records:
        builder.apply(record)
    head = recorder.head().snapshot
    assert builder.snapshot(head.version, head.time) == head


async def test_a_folder_that_is_gone_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder("naive")
    archive = Archive(tmp_path / "gone", [recorder], QUICK)
    archive.start()
    recorder.append(make.header())
    await until(lambda: archive.problem("naive") is not None)
    assert "No such file" in str(archive.problem("naive"))
    assert "naive: its records cannot be written" in caplog.text

    (tmp_path / "gone").mkdir()
    await until(lambda: archive.problem("naive") is None)
    recorder.append(make.arrived())
    await archive.close()
    assert traces_in(tmp_path / "gone")[0].records == [make.arrived()]
