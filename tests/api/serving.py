"""A server on a free loopback port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect

from backends.api import include_routes
from backends.archive import Archive
from backends.lessons.ground import MakeEngine
from backends.recorder import Recorder
from backends.records import AnyRecord
from backends.registry import Registry
from backends.settings import Settings
from backends.shelf import Shelf
from tests.fakes import FakeBackend, make_fake
from tests.listening import ListeningServer


class Served:
    """What a test needs of a running server."""

    def __init__(self, port: int, backends: tuple[FakeBackend, ...]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.backends = {backend.info.name: backend for backend in backends}

    @property
    def naive(self) -> FakeBackend:
        return self.backends["naive"]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{self.address}", timeout=20, trust_env=False)

    def feed(self, query: str = "", **options: Any) -> connect:
        return connect(f"ws://{self.address}/telemetry{query}", proxy=None, **options)


@asynccontextmanager
async def serving(
    *backends: FakeBackend,
    settings: Settings | None = None,
    visitor_grace: float = 0.0,
    make_engine: MakeEngine = make_fake,
    shelf: Shelf | None = None,
    archive: Archive | None = None,
) -> AsyncIterator[Served]:
    """Serve these engines until the block ends."""
    backends = backends or (FakeBackend("naive", settings=settings),)
    registry = Registry({backend.info.name: lambda backend=backend: backend for backend in backends})
    app = FastAPI()
    include_routes(
        app,
        registry,
        settings or Settings(max_model_len=64),
        make_engine=make_engine,
        visitor_grace=visitor_grace,
        shelf=shelf,
        archive=archive,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the server's own
        server = ListeningServer(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        running = asyncio.create_task(server.serve([listener]))
        await server.listening.wait()
        try:
            yield Served(listener.getsockname()[1], backends)
        finally:
            await registry.stop()
            server.should_exit = True
            await running


async def text_until(feed: ClientConnection, words: str, times: int = 1) -> str:
    """Whole frames as they came, up to one with these words, or the n-th time that they come."""
    text = ""
    while text.count(words) < times:
        text += str(await feed.recv())
    return text


def as_records(frames: str) -> list[dict[str, Any]]:
    """The records of several frames, one behind the other."""
    decoder, got, position = json.JSONDecoder(), [], 0
    while position < len(frames):
        records, position = decoder.raw_decode(frames, position)
        got += records
    return got


async def records_until(feed: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Whole frames up to one that has a record of this type."""
    got: list[dict[str, Any]] = []
    while not any(record["type"] == kind for record in got):
        got += json.loads(await feed.recv())
    return got


class Counter:
    """Counts records as a browser does: what opens a connection, snapshots and the states of other
    engines aside."""

    def __init__(self, backend: str, since: int | None = None) -> None:
        self.version = since
        self._backend = backend
        self._opened = False

    def see(self, record: dict[str, Any]) -> None:
        if record["type"] == "snapshot":
            self.version = record["version"]
        elif record["type"] == "header" and not self._opened:
            self._opened = True
        elif record["type"] == "state" and (not self._opened or record["backend"] != self._backend):
            pass
        elif self.version is not None:
            self.version += 1


async def recorded(recorder: Recorder, kind: type[AnyRecord], count: int = 1) -> list[AnyRecord]:
    """The first ``count`` records of this kind, as soon as they are there."""
    got: list[AnyRecord] = []
    async for entries in recorder.follow(recorder.oldest_version):
        got += [entry.record for entry in entries if isinstance(entry.record, kind)]
        if len(got) >= count:
            return got[:count]
    raise AssertionError("a recorder is followed without end")
