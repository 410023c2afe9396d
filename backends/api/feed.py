"""The live feed: records of a recorder → frames for any number of viewers.

One ticker wakes all viewers at most every ``MIN_INTERVAL``. Each viewer has a cursor into the log
and pulls its next frame when its socket has taken the last one, so a slow one holds up nobody:

    log      … ─┬────────────┬──────────────────────┬─ …
                cursor of    cursor of viewers      head
                a slow one   in step                (as of the last tick)

The frame from a cursor to the head is joined once from bytes that were serialised once; viewers in
step send the same string. Who falls out of the log, or too far behind, goes on from a snapshot.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from backends.api.disconnect import cancel
from backends.recorder import Entry, Moment, Recorder, RecordsDropped
from backends.records import AnyRecord, EngineState, encode_record
from backends.registry import Registry

MIN_INTERVAL = 0.033
"""Seconds between two ticks: at most 30 frames a second."""
FRAME_RECORDS = 500
FRAME_BYTES = 256 * 1024
"""A frame is ended at either; a single larger record still makes one."""
MAX_LAG = 2_000
"""Records a viewer may be behind, once it has caught up with the history."""
CACHED_FRAMES = 32

Observer = Callable[[str, AnyRecord], None]
"""Called with the backend's name and each of its records, in order."""


class Frame(NamedTuple):
    """Records as one JSON array, and the cursor after them."""

    text: str
    end: int


def join(lines: Iterable[bytes]) -> str:
    """JSON objects → one JSON array."""
    return f"[{b','.join(lines).decode()}]"


class Feed:
    """What viewers of one backend share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.num_viewers = 0
        self.head = 0
        """Records up to here may be sent; moved on by the ticker."""
        self.state: Entry | None = None
        """The latest state up to ``head``."""
        self._frames: OrderedDict[tuple[int, int], Frame] = OrderedDict()

    def advance(self) -> list[Entry]:
        """Move the head to the newest record; the records passed, or those of them still there."""
        try:
            entries = self.recorder.since(self.head)
            start = self.head
        except RecordsDropped:  # the loop stood still for longer than the log is long
            base, entries = self.recorder.history()
            start, self.state = base.snapshot.version, base.state
        self.head = start + len(entries)
        for entry in entries:
            if isinstance(entry.record, EngineState):
                self.state = entry
        return entries

    def frame(self, cursor: int) -> Frame:
        """Records from ``cursor`` towards the head, of bounded size, joined once for all viewers.

        Frames of the history end at multiples of ``FRAME_RECORDS``, so that viewers who came at
        different times share those too. Raises ``RecordsDropped``.
        """
        stop = min(self.head, (cursor // FRAME_RECORDS + 1) * FRAME_RECORDS)
        frame = self._frames.get((cursor, stop))
        if frame is None:
            lines = _within(FRAME_BYTES, self.recorder.since(cursor, stop - cursor))
            frame = self._frames[cursor, stop] = Frame(join(lines), cursor + len(lines))
            if len(self._frames) > CACHED_FRAMES:
                self._frames.popitem(last=False)
        return frame


def _within(max_bytes: int, entries: list[Entry]) -> list[bytes]:
    """Lines from the start, as many as fit, and the first in any case."""
    lines = [entry.line for entry in entries[:1]]
    num_bytes = sum(map(len, lines))
    for entry in entries[1:]:
        num_bytes += len(entry.line)
        if num_bytes > max_bytes:
            break
        lines.append(entry.line)
    return lines


class Hub:
    """The feeds of all backends, and the ticker."""

    def __init__(self, registry: Registry, observe: Observer) -> None:
        self._registry = registry
        self._observe = observe
        self.has_stopped = False
        """The ticker has failed: nothing moves on any more."""
        self.tick = asyncio.Event()
        """Set at the next tick, which puts a fresh one in its place: take it, look for a frame,
        and only then wait."""

    @cached_property
    def feeds(self) -> dict[str, Feed]:
        """Every backend's feed, in the operator's order."""
        return {backend.info.name: Feed(backend.recorder) for backend in self._registry}

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            await self._news()
            self.advance()
            await asyncio.sleep(MIN_INTERVAL)

    def advance(self) -> None:
        """One tick: move every feed to its newest record, and wake the viewers."""
        for name, feed in self.feeds.items():
            for entry in feed.advance():
                self._observe(name, entry.record)
        tick, self.tick = self.tick, asyncio.Event()
        tick.set()

    async def _news(self) -> None:
        """Return when any recorder has a record that its feed has not passed; never without an engine."""
        if not self.feeds:
            await asyncio.Event().wait()
        waiting = [
            asyncio.ensure_future(feed.recorder.wait_for(feed.head + 1)) for feed in self.feeds.values()
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(*waiting)


class Viewer:
    """One connection: where it is in the log, and what it gets next."""

    def __init__(self, hub: Hub, backend: str, since: int | None) -> None:
        self._hub = hub
        self._backend = backend
        self._feed = hub.feeds[backend]
        self._since = since
        self._cursor: int | None = None
        """``None`` until the engine has started once: there is no header to open with."""
        self._caught_up = False
        self._seen_states: dict[str, Entry | None] = {}

    def next_frame(self) -> str | None:
        """The next frame to send, or ``None`` when the viewer has everything up to the head."""
        if self._cursor is None:
            return self._before_header() if self._feed.recorder.header is None else self._open()
        states = self._news_of_states(but=self._backend)
        if self._cursor >= self._feed.head:
            self._caught_up = True
            return join(states) if states else None
        if self._caught_up and self._feed.head - self._cursor > MAX_LAG:
            return self._go_on_from(self._feed.recorder.head(), states)
        try:
            frame = self._feed.frame(self._cursor)
        except RecordsDropped:
            return self._go_on_from(self._feed.recorder.head(), states)
        self._cursor = frame.end
        return f"{join(states)[:-1]},{frame.text[1:]}" if states else frame.text

    def _before_header(self) -> str | None:
        states = self._news_of_states(but=None)
        return join(states) if states else None

    def _open(self) -> str:
        states = self._news_of_states(but=self._backend)
        recorder = self._feed.recorder
        header = recorder.head().header
        assert header is not None
        if self._since is not None and recorder.oldest_version <= self._since <= recorder.version:
            self._cursor = self._since
            return join([header.line, *states])
        base = recorder.base()
        return self._go_on_from(base._replace(header=header), states)

    def _go_on_from(self, moment: Moment, states: list[bytes]) -> str:
        """Header, states, snapshot. The own state stands before the snapshot, since records after
        it are counted."""
        self._cursor = moment.snapshot.version
        known = [entry.line for entry in (moment.header, moment.state) if entry is not None]
        return join([*known, *states, encode_record(moment.snapshot)])

    def _news_of_states(self, but: str | None) -> list[bytes]:
        """The state of each backend where it has changed; ``but`` has its states in the log."""
        changed = []
        for name, feed in self._hub.feeds.items():
            if name == but or feed.state is None or feed.state is self._seen_states.get(name):
                continue
            self._seen_states[name] = feed.state
            changed.append(feed.state.line)
        return changed
