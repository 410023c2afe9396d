"""Where an experiment runs: engines of its own for as long as it lasts, and whoever watches it.

An engine of an experiment is a private one, with the settings that the experiment needs. It can be
paused, starved and filled up without anybody else's chat being disturbed, and nobody else's requests
are in its records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from backends.base import Backend, ControlAction
from backends.records import AnyRecord, EngineState, QueueSample, RequestArrived
from backends.trace import trace_lines
from backends.workloads.run import Run, run_on
from backends.workloads.workload import Planned

Post = Callable[[Backend, str, dict[str, Any]], Awaitable[list[bytes]]]
"""Posts a body to a route of this server, over one engine alone: the pieces that it sends."""


class MakeEngine(Protocol):
    """Builds an engine as the operator has it, but for some settings."""

    def __call__(self, name: str, /, **settings: Any) -> Backend: ...


class EngineTrace(NamedTuple):
    """All that one engine of an experiment recorded, as a trace file."""

    engine: str
    lines: bytes


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an experiment is."""

    engine: str
    state: str
    """The engine's ``State``."""
    fraction: float | None = None
    """Of its start, where it says so."""
    num_ended: int = 0
    num_requests: int = 0
    """0 until there are any."""


class Ground:
    """One experiment's engines. ``report`` hears how far it is."""

    def __init__(self, make_engine: MakeEngine, report: Callable[[Progress], None], post: Post) -> None:
        self._make_engine = make_engine
        self._report = report
        self._post = post
        self._engines: list[Backend] = []

    def traces(self) -> list[EngineTrace]:
        """Of every engine that the experiment started, in that order, once it has ended."""
        return [EngineTrace(one.info.name, b"".join(trace_lines(one.recorder))) for one in self._engines]

    @asynccontextmanager
    async def engine(self, name: str, **settings: Any) -> AsyncIterator[Backend]:
        """A started engine of its own, stopped at the end whatever happens.

        Raises ``EngineUnavailable``.
        """
        engine = self._make_engine(name, **settings)
        self._engines.append(engine)
        try:
            await self._start(engine)
            yield engine
        finally:
            await engine.stop()

    async def run(
        self,
        engine: Backend,
        planned: Sequence[Planned],
        *,
        mode: str | None = None,
        stream: bool = True,
        together: bool = True,
        waiting_queue: str | None = None,
        may_fail: bool = False,
    ) -> Run:
        """Requests on one engine, until the last has ended.

        ``together``: all of them wait when the engine makes its first batch, whatever their times:
        what it does then depends on nothing but them. ``waiting_queue``: the queue in which the engine
        says that they wait, where having arrived here is not enough. Raises the first error of a
        request, unless they ``may_fail``.
        """
        changed = asyncio.Event()
        begun: list[Run] = []

        def on_change(run: Run) -> None:
            begun[:] = [run]
            changed.set()
            self._report(
                Progress(
                    engine=engine.info.name,
                    state=engine.state.state,
                    num_ended=run.num_ended,
                    num_requests=len(planned),
                )
            )

        if together:
            await engine.control(ControlAction.PAUSE)
        version = engine.recorder.version
        running = asyncio.create_task(
            run_on(engine, planned, mode=mode, stream=stream, on_change=on_change), name="lesson run"
        )
        try:
            if together:
                if waiting_queue is None:
                    all_wait = arrivals(engine, version, len(planned))
                else:
                    all_wait = waiting(engine, version, waiting_queue, len(planned))
                await _unless_refused(all_wait, begun, changed)
                await engine.control(ControlAction.RESUME)
            run = await running
        finally:
            running.cancel()
            await asyncio.wait({running})
        if run.errors and not may_fail:
            raise next(iter(run.errors.values()))
        return run

    async def post(self, engine: Backend, path: str, body: dict[str, Any]) -> list[bytes]:
        """What a route of the server sends for this body, in the pieces that it sends."""
        return await self._post(engine, path, body)

    async def _start(self, engine: Backend) -> None:
        """Start it, telling what it says of itself meanwhile."""
        telling = asyncio.create_task(self._tell(engine))
        try:
            await engine.start()
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    async def _tell(self, engine: Backend) -> None:
        async for entries in engine.recorder.follow(engine.recorder.version):
            for record in (entry.record for entry in entries):
                if isinstance(record, EngineState):
                    self._report(
                        Progress(engine=engine.info.name, state=record.state, fraction=record.progress)
                    )


async def _unless_refused(
    all_wait: Coroutine[Any, Any, None], begun: list[Run], changed: asyncio.Event
) -> None:
    """Until all requests wait in the engine, or one has been refused."""
    arriving = asyncio.create_task(all_wait)
    try:
        while not arriving.done():
            refusing = asyncio.create_task(changed.wait())
            await asyncio.wait({arriving, refusing}, return_when=asyncio.FIRST_COMPLETED)
            refusing.cancel()
            changed.clear()
            if begun and begun[0].errors:
                return
    finally:
        arriving.cancel()
        await asyncio.wait({arriving})


async def arrivals(engine: Backend, version: int, count: int) -> None:
    """Until that many requests have arrived after this version of the engine's log."""
    arrived: list[AnyRecord] = []
    async for entries in engine.recorder.follow(version):
        arrived += [entry.record for entry in entries if isinstance(entry.record, RequestArrived)]
        if len(arrived) >= count:
            return


async def waiting(engine: Backend, version: int, queue: str, count: int) -> None:
    """Until the engine says, after this version of its log, that so many wait in that queue."""
    async for entries in engine.recorder.follow(version):
        samples = [entry.record for entry in entries if isinstance(entry.record, QueueSample)]
        if any(sample.queues.get(queue) == count for sample in samples):
            return
