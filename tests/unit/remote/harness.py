"""The engine ``remote`` in front of servers of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from backends.base import GenerationRequest, TokenChunk
from backends.recorder import Recorder
from backends.records import AnyRecord, EngineState, State
from backends.remote.engine import RemoteBackend
from backends.settings import Settings
from tests.engine_harness import request

PATIENCE = 60
"""Seconds after which a test that waits for an event fails."""

HELLO = ({"role": "user", "content": "Hello"},)


@asynccontextmanager
async def remote(*addresses: str, **settings: Any) -> AsyncIterator[RemoteBackend]:
    """Not started yet; stopped whatever happens."""
    engine = RemoteBackend(Settings(remote_url=addresses, **settings))
    try:
        async with asyncio.timeout(PATIENCE):
            yield engine
    finally:
        await engine.stop()


def chat(name: str = "r0", **options: Any) -> GenerationRequest:
    return msgspec.structs.replace(request(name, **options), messages=HELLO)


async def answer(engine: RemoteBackend, asked: GenerationRequest) -> list[TokenChunk]:
    return [chunk async for chunk in engine.generate(asked)]


def text_of(chunks: list[TokenChunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def records_of(recorder: Recorder, kind: type[AnyRecord]) -> list[Any]:
    return [entry.record for entry in recorder.since(0) if isinstance(entry.record, kind)]


async def all_up(engine: RemoteBackend) -> None:
    """Return when every server is: the engine itself is ready with the first."""
    fleet = engine._fleet
    assert fleet is not None, "it has started"
    while len(fleet.up) < len(fleet.servers):
        await engine.recorder.wait_for(engine.recorder.version + 1)


async def reaches(engine: RemoteBackend, *wanted: State) -> EngineState:
    """The state once it is one of these."""
    while engine.state.state not in wanted:
        await engine.recorder.wait_for(engine.recorder.version + 1)
    return engine.state
