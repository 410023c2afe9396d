"""The recorder: everything an engine emitted, bounded, and the one thread-safe seam.

Any thread appends; the event loop reads and waits. Each record is serialised once, when it is
appended, whatever the number of viewers. Records that no longer fit are folded into a base, and
everything is folded into a head as well, so there are two places to go on from:

    dropped records │ retained log                     │ to come
    ───────fold────►│base                              │
    ───────fold─────┴─────────────────────────────────►│head
                    ▲ oldest_version                   ▲ version

``base + retained log`` is always the whole truth; ``head`` serves a viewer that cannot keep up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from backends.records import (
    AnyRecord,
    EngineState,
    Snapshot,
    TraceHeader,
    encode_record,
    time_of,
)
from backends.snapshot import SnapshotBuilder

DEFAULT_CAPACITY = 10_000
DEFAULT_MAX_BYTES = 32 * 1024 * 1024


class Entry(NamedTuple):
    """A record and its JSON, encoded once."""

    record: AnyRecord
    line: bytes


class RecordsDropped(LookupError):
    """The records asked for are no longer in the log, or not yet: go on from a snapshot."""


class _Waiter(NamedTuple):
    version: int
    loop: asyncio.AbstractEventLoop
    reached: asyncio.Future[None]


class Moment(NamedTuple):
    """All there is to know after a number of records: what a viewer needs to go on from there."""

    header: Entry | None
    """The latest header; ``None`` until the engine has started once."""
    state: Entry | None
    snapshot: Snapshot


class _Point:
    """One end of the log, moving on record by record."""

    def __init__(self) -> None:
        self.version = 0
        self.header: Entry | None = None
        self.state: Entry | None = None
        self._time = 0.0
        self._builder = SnapshotBuilder()

    def advance(self, entry: Entry) -> None:
        self._builder.apply(entry.record)
        self.version += 1
        self._time = time_of(entry.record)
        if isinstance(entry.record, TraceHeader):
            self.header = entry
        elif isinstance(entry.record, EngineState):
            self.state = entry

    def moment(self) -> Moment:
        return Moment(self.header, self.state, self._builder.snapshot(self.version, self._time))


class Recorder:
    """The bounded log of one backend. Safe to call from any thread."""

    def __init__(
        self, backend: str, *, capacity: int = DEFAULT_CAPACITY, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        if capacity < 1:
            raise ValueError(f"Got {capacity = } but a log holds at least 1 record")
        self.backend = backend
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._log: deque[Entry] = deque()
        self._num_bytes = 0
        self._base = _Point()
        self._head = _Point()
        self._waiters: list[_Waiter] = []

    # What is there

    @property
    def version(self) -> int:
        """Records appended so far."""
        return self._head.version

    @property
    def oldest_version(self) -> int:
        """Records dropped so far: the first retained record came after this many."""
        return self._base.version

    @property
    def header(self) -> TraceHeader | None:
        """The latest header; ``None`` until the engine has started once."""
        entry = self._head.header
        return entry.record if entry is not None and isinstance(entry.record, TraceHeader) else None

    @property
    def state(self) -> EngineState | None:
        """The latest state."""
        entry = self._head.state
        return entry.record if entry is not None and isinstance(entry.record, EngineState) else None

    def since(self, version: int, limit: int | None = None) -> list[Entry]:
        """Retained records after the first ``version``, at most ``limit``; empty at the head.

        Raises ``RecordsDropped`` when some of them are gone, or ``version`` was never reached.
        """
        with self._lock:
            start, stop = version - self._base.version, len(self._log)
            if not 0 <= start <= stop:
                raise RecordsDropped(
                    f"Records {self._base.version} to {self._head.version} are kept, not {version}"
                )
            if limit is not None:
                stop = min(stop, start + limit)
            return [self._log[index] for index in range(start, stop)]

    def base(self) -> Moment:
        """The moment of ``oldest_version``: with the retained log, the whole truth."""
        with self._lock:
            return self._base.moment()

    def head(self) -> Moment:
        """The moment after everything."""
        with self._lock:
            return self._head.moment()

    def history(self) -> tuple[Moment, list[Entry]]:
        """The base and every retained record, with nothing dropped between the two."""
        with self._lock:
            return self._base.moment(), list(self._log)

    # What comes in

    def append(self, record: AnyRecord) -> None:
        """Add one record."""
        self.extend((record,))

    def extend(self, records: Iterable[AnyRecord]) -> None:
        """Add records in order, with none of another thread's between them."""
        entries = [_entry(record) for record in records]
        with self._lock:
            for entry in entries:
                self._log.append(entry)
                self._num_bytes += len(entry.line)
                self._head.advance(entry)
            while self._is_too_full():
                self._drop_oldest()
            reached = [waiter for waiter in self._waiters if waiter.version <= self._head.version]
            if reached:
                self._waiters = [waiter for waiter in self._waiters if waiter.version > self._head.version]
        for waiter in reached:
            _wake(waiter)

    def _is_too_full(self) -> bool:
        """The newest record stays whatever its size."""
        return len(self._log) > self._capacity or (self._num_bytes > self._max_bytes and len(self._log) > 1)

    def _drop_oldest(self) -> None:
        entry = self._log.popleft()
        self._num_bytes -= len(entry.line)
        self._base.advance(entry)

    # Waiting for more

    async def wait_for(self, version: int) -> None:
        """Return once at least ``version`` records have been appended.

        A waiter is woken once and then leaves the list, so an engine that appends a thousand
        records between two turns of the loop schedules one call, not a thousand.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._head.version >= version:
                return
            waiter = _Waiter(version, loop, loop.create_future())
            self._waiters.append(waiter)
        try:
            await waiter.reached
        finally:
            with self._lock, contextlib.suppress(ValueError):  # gone already when it was woken
                self._waiters.remove(waiter)

    async def follow(self, version: int) -> AsyncIterator[list[Entry]]:
        """Every record after the first ``version``, in batches as they come, without end.

        Raises ``RecordsDropped`` when the reader has fallen out of the log.
        """
        while True:
            await self.wait_for(version + 1)
            entries = self.since(version)
            version += len(entries)
            yield entries


def _entry(record: AnyRecord) -> Entry:
    assert not isinstance(record, Snapshot), "snapshots are made from the log, never part of it"
    return Entry(record, encode_record(record))


def _wake(waiter: _Waiter) -> None:
    # RuntimeError: that loop has been closed, so nobody waits any more.
    with contextlib.suppress(RuntimeError):
        waiter.loop.call_soon_threadsafe(_resolve, waiter.reached)


def _resolve(reached: asyncio.Future[None]) -> None:
    if not reached.done():  # cancelled meanwhile
        reached.set_result(None)
