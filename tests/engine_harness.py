"""Clients of an engine and a watch on its records, for tests that run a real worker process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from backends.base import ControlAction, GenerationRequest, SamplingParams, TokenChunk
from backends.errors import ServescopeError
from backends.hosted import HostedEngine
from backends.records import (
    AnyRecord,
    FinishReason,
    QueueSample,
    RequestArrived,
    RequestFinished,
    Source,
    StepRecord,
)

Engine = TypeVar("Engine", bound=HostedEngine)

PATIENCE = 120
"""Seconds after which a test that waits for an engine fails."""


def request(
    name: str,
    prompt: str = " a b c d",
    *,
    stream: bool = True,
    visitor: str | None = None,
    mode: str | None = None,
    cache_salt: str | None = None,
    **sampling: Any,
) -> GenerationRequest:
    """Greedy, five tokens, unless said otherwise."""
    return GenerationRequest(
        request_id=name,
        prompt=prompt,
        sampling=SamplingParams(**{"max_tokens": 5, "temperature": 0, **sampling}),
        source=Source.API,
        stream=stream,
        visitor=visitor,
        mode=mode,
        cache_salt=cache_salt,
    )


@asynccontextmanager
async def started(engine: Engine) -> AsyncIterator[Engine]:
    """The engine up, and stopped whatever happens."""
    try:
        async with asyncio.timeout(PATIENCE):
            await engine.start()
        yield engine
    finally:
        await engine.stop()


class Client:
    """Reads one request to its end, in a task of its own."""

    def __init__(self, engine: HostedEngine, request: GenerationRequest) -> None:
        self.id = request.request_id
        self.chunks: list[TokenChunk] = []
        self.error: ServescopeError | None = None
        self._grown = asyncio.Event()
        self._chunks = engine.generate(request)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self._chunks:
                self.chunks.append(chunk)
                self._grown.set()
        except ServescopeError as error:
            self.error = error

    @property
    def tokens(self) -> list[TokenChunk]:
        return [chunk for chunk in self.chunks if chunk.finish_reason is None]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    async def receives(self, count: int) -> None:
        """Return when that many tokens have come."""
        async with asyncio.timeout(PATIENCE):
            while len(self.tokens) < count:
                self._grown.clear()
                await self._grown.wait()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Watch:
    """The records from a moment on."""

    def __init__(self, engine: HostedEngine) -> None:
        self._recorder = engine.recorder
        self._start = engine.recorder.version

    @property
    def records(self) -> list[AnyRecord]:
        return [entry.record for entry in self._recorder.since(self._start)]

    @property
    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    @property
    def samples(self) -> list[QueueSample]:
        return [record for record in self.records if isinstance(record, QueueSample)]

    @property
    def num_whole_steps(self) -> int:
        """Steps of which the last record is there, which is a queue sample. One that comes first is of a step
        from before."""
        records = self.records
        sampled = [at for at, record in enumerate(records) if isinstance(record, QueueSample)]
        return sum(isinstance(record, StepRecord) for record in records[: sampled[-1] if sampled else 0])

    @property
    def batches(self) -> list[str]:
        return [" ".join(row.request_id for row in step.rows) for step in self.steps]

    def arrived(self) -> list[str]:
        return [r.request_id for r in self.records if isinstance(r, RequestArrived)]

    def finished(self) -> dict[str, FinishReason]:
        return {r.request_id: r.reason for r in self.records if isinstance(r, RequestFinished)}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                version = self._recorder.version  # before looking, or a record could slip between
                if condition():
                    return
                await self._recorder.wait_for(version + 1)


async def held(engine: HostedEngine, *requests: GenerationRequest) -> list[Client]:
    """The engine paused, and these requests waiting in it, in order."""
    if not engine.gate.paused:
        await engine.control(ControlAction.PAUSE)
    clients = []
    watch = Watch(engine)
    for item in requests:
        clients.append(Client(engine, item))
        await watch.until(lambda item=item: item.request_id in watch.arrived())
    return clients


async def press_step(engine: HostedEngine, watch: Watch) -> None:
    """One step, until its records are there."""
    before = watch.num_whole_steps
    await engine.control(ControlAction.STEP)
    await watch.until(lambda: watch.num_whole_steps > before)


async def run(engine: HostedEngine, *clients: Client) -> None:
    """Resume, and wait until these clients have read to the end."""
    await engine.control(ControlAction.RESUME)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(client.task for client in clients))
