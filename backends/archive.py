"""Every engine's records as files while they come: ``--record DIR``.

    DIR/paged-20260801T101500Z.jsonl.gz     from the first record on
    DIR/paged-20260801T111500Z.jsonl.gz     from a snapshot on, once the one before was large enough

Each file is a trace of its own, whole after every write. The latest few of an engine are kept. A full
disk ends a file, is told in the log and in ``/health``, and is tried again later: serving goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from backends.gzip_log import GzipLog
from backends.recorder import Entry, Moment, Recorder, RecordsDropped
from backends.trace import lines_from

MIB = 1024 * 1024

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    file_bytes: int = 128 * MIB
    """Uncompressed, after which a new file begins. A reader takes four times that."""
    files_kept: int = 8
    """Of each engine, of those that this server wrote; the oldest are removed."""
    write_interval: float = 1.0
    """Seconds of records that one write gathers: what a killed server loses."""
    retry_interval: float = 30.0
    """Seconds until a file is tried again after one failed."""


class Archive:
    """Writes until it is closed."""

    def __init__(self, folder: Path, recorders: Iterable[Recorder], limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._writers = {recorder.backend: _Writer(folder, recorder, limits) for recorder in recorders}
        self._writing: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._writing = [asyncio.create_task(writer.run()) for writer in self._writers.values()]

    async def close(self) -> None:
        """What has been recorded until now is in the files that are open when this returns."""
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()

    def problem(self, backend: str) -> str | None:
        """Why this engine's records are not being written; ``None`` while they are."""
        return self._writers[backend].problem


class _Writer:
    """The files of one engine, one after the other."""

    def __init__(self, folder: Path, recorder: Recorder, limits: Limits) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._recorder = recorder
        self._limits = limits
        self._files: deque[Path] = deque()
        self._log: GzipLog | None = None
        self._version = 0
        """Records that are in a file."""

    async def run(self) -> None:
        while self._recorder.header is None:  # without a header nothing is a trace
            await self._recorder.wait_for(self._recorder.version + 1)
        begin: tuple[Moment, list[Entry]] = self._recorder.history()
        while True:
            try:
                await self._write_file(*begin)
            except OSError as error:
                self._fail(error)
                await asyncio.sleep(self._limits.retry_interval)
            except RecordsDropped:
                self._warn()
            begin = (self._recorder.head(), [])

    async def _write_file(self, moment: Moment, entries: list[Entry]) -> None:
        """One file, from a moment on, until it is large enough."""
        log = await _in_thread(partial(self._begin_file, moment, entries))
        self.problem = None
        try:
            while True:  # a file has at least what came after its snapshot
                await asyncio.sleep(self._limits.write_interval)
                await self._recorder.wait_for(self._version + 1)
                await _in_thread(partial(self._append, log, self._recorder.since(self._version)))
                if log.num_bytes >= self._limits.file_bytes:
                    break
        except (OSError, RecordsDropped):
            self._end_file()
            raise
        self._end_file()

    def _begin_file(self, moment: Moment, entries: list[Entry]) -> GzipLog:
        log = self._open()
        try:
            log.write(b"".join(lines_from(moment, entries)))
        except OSError:
            log.close()
            log.path.unlink(missing_ok=True)  # nothing is in it
            raise
        self._log = log
        self._version = moment.snapshot.version + len(entries)
        return log

    def _append(self, log: GzipLog, entries: list[Entry]) -> None:
        log.write(b"".join(entry.line + b"\n" for entry in entries))
        self._version += len(entries)

    def _end_file(self) -> None:
        assert self._log is not None
        self._log.close()
        self._log = None

    def _open(self) -> GzipLog:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        number = 1
        while True:
            suffix = "" if number == 1 else f"-{number}"
            path = self._folder / f"{self._recorder.backend}-{stamp}{suffix}.jsonl.gz"
            try:
                log = GzipLog(path)
            except FileExistsError:
                number += 1
                continue
            self._files.append(path)
            while len(self._files) > self._limits.files_kept:
                self._files.popleft().unlink(missing_ok=True)
            return log

    def _fail(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)
        logger.error("%s: its records cannot be written: %s", self._recorder.backend, self.problem)

    def _warn(self) -> None:
        logger.warning("%s: the disk is too slow: some records are in no file", self._recorder.backend)

    def close(self) -> None:
        """The last records, where a file is open."""
        if self._log is None:
            return
        try:
            self._append(self._log, self._recorder.since(self._version))
        except OSError as error:
            self._fail(error)
        except RecordsDropped:
            self._warn()
        self._end_file()


async def _in_thread(act: Callable[[], T]) -> T:
    """What was begun is ended, also when the task that waits for it is cancelled."""
    acting = asyncio.ensure_future(asyncio.to_thread(act))
    try:
        return await asyncio.shield(acting)
    except asyncio.CancelledError:
        await asyncio.wait([acting])
        raise
