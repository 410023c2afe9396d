"""Viewers beside a load, in their own process, held from this one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil

from tests.load.server import Server
from tests.load.viewers import Report

PATIENCE = 90.0
GIVING_WAY = 19


class Room:
    """A number of viewers, watching."""

    def __init__(self, process: asyncio.subprocess.Process, server: Server, file: Path) -> None:
        self._process = process
        self._server = server
        self._file = file
        self.last_version = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def close(self) -> Report:
        """With the engine idle: let everybody see the last record, and tell what each has seen."""
        self.last_version = await asyncio.to_thread(self._server.version)
        await asyncio.wait_for(self._process.communicate(f"{self.last_version}\n".encode()), PATIENCE)
        if self._process.returncode != 0:
            raise RuntimeError("The viewers' process failed; what it said is above")
        return msgspec.msgpack.decode(self._file.read_bytes(), type=Report)


@asynccontextmanager
async def room(server: Server, count: int, *, elsewhere: bool = False) -> AsyncIterator[Room]:
    """``count`` viewers, each with its first frame; ended whatever happens. ``elsewhere``: from then on their
    process gives way to all others, as near as can be to one on a machine of its own."""
    file = server.folder / "viewers.msgpack"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.load.viewers", server.address, server.backend, str(count), str(file)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        if said != b"ready\n":
            raise RuntimeError("The viewers could not open; what they said is above")
        if elsewhere:
            psutil.Process(process.pid).nice(GIVING_WAY)
        yield Room(process, server, file)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
