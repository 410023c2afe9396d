"""Run requests on one engine, each by itself, and keep what the engine recorded meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from backends.base import Backend, GenerationRequest, SamplingParams
from backends.errors import ServescopeError
from backends.recorder import Entry
from backends.records import AnyRecord, RequestArrived, RequestFinished, Source, TraceHeader
from backends.workloads.workload import Planned


@dataclass
class Run:
    """Requests on one engine, under way or done."""

    backend: str
    start_time: float
    """On the clock of the records: when the first request was due."""
    request_ids: list[str]
    """In the order of the plan."""
    version: int
    """Of the engine's recorder: what has been kept so far ends there."""
    header: TraceHeader | None = None
    """Of the engine that ran it."""
    records: list[AnyRecord] = field(default_factory=list)
    """Everything the engine recorded from the start on, of other people's requests as well."""
    num_ended: int = 0
    errors: dict[str, ServescopeError] = field(default_factory=dict)

    @property
    def in_flight(self) -> set[str]:
        """Those of its requests that have arrived, and not ended, as far as its records go."""
        arrived = {record.request_id for record in self.records if isinstance(record, RequestArrived)}
        finished = {record.request_id for record in self.records if isinstance(record, RequestFinished)}
        return (arrived & set(self.request_ids)) - finished

    def keep(self, entries: Sequence[Entry]) -> None:
        self.records += [entry.record for entry in entries]
        self.version += len(entries)


async def run_on(
    engine: Backend,
    planned: Sequence[Planned],
    *,
    mode: str | None = None,
    stream: bool = True,
    temperature: float = 0.0,
    visitor: str | None = None,
    cache_salt: str | None = None,
    on_change: Callable[[Run], None] = lambda run: None,
) -> Run:
    """All of them, at their times; returns when the last has ended. Cancelling it ends them all.

    ``on_change`` gets the run when it begins and whenever a request has ended.
    Raises ``EngineUnavailable``; what goes wrong with one request is in ``Run.errors``.
    """
    await engine.start()
    clock = asyncio.get_running_loop().time  # time.monotonic, as in the records
    run = Run(
        engine.info.name,
        clock(),
        [uuid.uuid4().hex for _ in planned],
        engine.recorder.version,
        engine.recorder.header,
    )
    on_change(run)
    keeping = asyncio.create_task(_keep_records(engine, run))
    try:
        async with asyncio.TaskGroup() as asking:
            for name, request in zip(run.request_ids, planned, strict=True):
                generation = GenerationRequest(
                    request_id=name,
                    prompt=request.prompt,
                    sampling=SamplingParams(
                        max_tokens=request.max_tokens,
                        temperature=temperature,
                        ignore_eos="ignore_eos" in engine.info.supported,
                    ),
                    source=Source.WORKLOAD,
                    stream=stream,
                    mode=mode,
                    visitor=visitor,
                    cache_salt=cache_salt,
                )
                delay = run.start_time + request.at - clock()
                asking.create_task(_ask(engine, run, generation, delay, on_change))
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})
    run.keep(engine.recorder.since(run.version))
    return run


async def _ask(
    engine: Backend, run: Run, request: GenerationRequest, delay: float, on_change: Callable[[Run], None]
) -> None:
    await asyncio.sleep(delay)
    try:
        async with aclosing(engine.generate(request)) as chunks:
            async for _ in chunks:
                pass
    except ServescopeError as error:
        run.errors[request.request_id] = error
    run.num_ended += 1
    on_change(run)


async def _keep_records(engine: Backend, run: Run) -> None:
    """As they come: the recorder's log is bounded."""
    async for entries in engine.recorder.follow(run.version):
        run.keep(entries)
