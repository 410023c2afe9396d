"""Viewers of the live feed in one light process: ``python -m tests.load.viewers ADDRESS BACKEND COUNT FILE``.

It says ``ready`` when every viewer has its first frame. A number on its standard input is the version at
which the run ended: each viewer reads on until it has seen that many records, and what all have seen is
written to FILE.

A record is kept as its checksum. Viewers in step are sent the same bytes, so that a frame is taken apart
once for all of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode
from zlib import crc32

import msgspec
import websockets

from backends.records import EngineState, Snapshot, decode_record, time_of
from tests.load.crowd import visitor_name

PATIENCE = 30.0
"""Seconds to the first frame, and to the last record: limits for what goes wrong."""
FRAMES_REMEMBERED = 256

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Frame(NamedTuple):
    """What a frame adds to what a viewer has seen."""

    opening: bytes | None
    """The snapshot in it: from here the viewer counts anew, whatever stood before."""
    checksums: array[int]
    """Of the records that are counted."""
    oldest: float | None
    """When the first of them was recorded."""


class Segment(msgspec.Struct):
    """What one viewer saw without a skip."""

    opening: bytes
    """The snapshot that it began with."""
    start: int
    """Its version."""
    checksums: bytes
    """Of each record after it, four bytes each."""


class Seen(msgspec.Struct):
    """All that one viewer saw."""

    segments: list[Segment]
    frame_times: list[float]
    lateness: list[float]
    """Of each frame: seconds from its oldest record to its arrival here. What had been recorded before the
    viewer came is history, and not late."""


class Report(msgspec.Struct):
    viewers: list[Seen]
    cpu_seconds: float
    """Of this process: the price of looking, which is paid on the same machine."""


class Viewer:
    """One connection of the feed."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.version: int | None = None
        self.progressed = asyncio.Event()
        self._opened_at = 0.0
        self._segments: list[tuple[bytes, int, array[int]]] = []
        self._frame_times: list[float] = []
        self._lateness: list[float] = []

    async def watch(self, address: str, visitor: str) -> None:
        """Until cancelled."""
        query = urlencode({"backend": self._backend, "visitor": visitor})
        url = f"{address.replace('http', 'ws', 1)}/telemetry?{query}"
        async with websockets.connect(url, max_size=None, compression=None, proxy=None) as socket:
            self._opened_at = time.monotonic()
            async for message in socket:
                assert isinstance(message, str)
                self._see(take_apart(message, self._backend))

    def _see(self, frame: Frame) -> None:
        if frame.opening is not None:
            snapshot = decode_record(frame.opening)
            assert isinstance(snapshot, Snapshot)
            self._segments.append((frame.opening, snapshot.version, array("I")))
        if not self._segments:  # states of engines, before this one has a header
            return
        _, start, checksums = self._segments[-1]
        checksums.extend(frame.checksums)
        self.version = start + len(checksums)
        self.progressed.set()
        if frame.oldest is not None and frame.oldest > self._opened_at:
            now = time.monotonic()
            self._frame_times.append(now)
            self._lateness.append(now - frame.oldest)

    async def reaches(self, version: int) -> None:
        while self.version is None or self.version < version:
            self.progressed.clear()
            await self.progressed.wait()

    def seen(self) -> Seen:
        segments = [Segment(opening, start, sums.tobytes()) for opening, start, sums in self._segments]
        return Seen(segments, self._frame_times, self._lateness)


@lru_cache(FRAMES_REMEMBERED)
def take_apart(message: str, backend: str) -> Frame:
    """The records of a frame. Not counted: what opens a connection or stands before a snapshot, and the
    states of other engines."""
    opening, counted = None, array("I")
    oldest = None
    for raw in _split(message):
        line = bytes(raw)
        if line.startswith(b'{"type":"snapshot"'):
            opening, counted, oldest = line, array("I"), None
        elif not _is_beside_the_log(line, backend):
            counted.append(crc32(line))
            if oldest is None:
                oldest = time_of(decode_record(line))
    return Frame(opening, counted, oldest)


def _is_beside_the_log(line: bytes, backend: str) -> bool:
    if not line.startswith(b'{"type":"state"'):
        return False
    state = decode_record(line)
    assert isinstance(state, EngineState)
    return state.backend != backend


async def main(address: str, backend: str, count: int, file: Path) -> None:
    viewers = [Viewer(backend) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        watching = [
            group.create_task(viewer.watch(address, visitor_name(number)))
            for number, viewer in enumerate(viewers)
        ]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(viewer.reaches(0) for viewer in viewers))
        print("ready", flush=True)
        begin = time.process_time()
        last_version = int(await asyncio.to_thread(sys.stdin.readline))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(viewer.reaches(last_version) for viewer in viewers))
        for task in watching:
            task.cancel()
    report = Report([viewer.seen() for viewer in viewers], time.process_time() - begin)
    file.write_bytes(msgspec.msgpack.encode(report))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
