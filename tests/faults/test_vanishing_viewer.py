"""A viewer whose network is gone says no goodbye: nobody answers the server's pings any more."""

from __future__ import annotations

import asyncio
import base64
import os
import socket

from fastapi import FastAPI

from app import server_config
from backends.api import include_routes
from backends.records import FinishReason, RequestArrived, RequestFinished
from backends.registry import Registry
from backends.settings import Settings
from tests.api.serving import recorded
from tests.engine_harness import request
from tests.fakes import FakeBackend, make_fake
from tests.listening import ListeningServer

PING_INTERVAL = 0.2
"""Of the real server: 20 s, and as long again for the answer."""


async def test_a_viewer_who_vanishes_is_let_go_and_takes_the_request_along() -> None:
    engine, settings = FakeBackend("naive"), Settings(max_model_len=64)
    app = FastAPI()
    registry = Registry({"naive": lambda: engine})
    include_routes(app, registry, settings, make_engine=make_fake, visitor_grace=0)
    config = server_config(app, settings)
    config.ws_ping_interval = config.ws_ping_timeout = PING_INTERVAL
    async with asyncio.timeout(30):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = ListeningServer(config)
            serving = asyncio.create_task(server.serve([listener]))
            await server.listening.wait()
            writer = await _open_feed(listener.getsockname()[1], visitor="v1")
            await engine.start()
            engine.gate.pause()
            asking = asyncio.create_task(_read(engine))
            await recorded(engine.recorder, RequestArrived)
            [finished] = await recorded(engine.recorder, RequestFinished)
            await asking
            writer.close()
            await registry.stop()
            server.should_exit = True
            await serving
    assert finished.reason is FinishReason.ABORT
    assert engine.num_in_flight == 0


async def _open_feed(port: int, visitor: str) -> asyncio.StreamWriter:
    """A WebSocket whose client answers nothing once it is open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /telemetry?visitor={visitor} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    return writer


async def _read(engine: FakeBackend) -> None:
    async for _ in engine.generate(request("r1", "one two", visitor="v1")):
        pass
