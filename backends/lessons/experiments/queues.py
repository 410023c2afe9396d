"""One queue for each reader, and what one queue for two does."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing

from backends.base import Backend, ControlAction, GenerationRequest, SamplingParams
from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import timelines
from backends.lessons.ground import Ground, arrivals
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.records import AnyRecord, QueueSample, RequestFinished, Source
from backends.workloads.run import Run

READ_TOKENS = 24
NUM_EACH = 3
MIXED_TOKENS = 3
LAG = 0.5
"""Seconds by which one of two threads is late: what happens by chance on a busy machine."""


async def one_queue_per_request(ground: Ground) -> Outcome:
    """A reader who pauses beside one who does not; then results on one queue, and on one for each call."""
    settings = {"batch_size": NUM_EACH, "result_lag": LAG, **ROOM}
    async with ground.engine("naive", result_routing="per_call", **settings) as engine:
        depths = await _slow_reader(ground, engine)
        per_call = await _mixed(ground, engine)
    async with ground.engine("naive", result_routing="shared", **settings) as engine:
        shared = await _mixed(ground, engine)
    return Outcome(
        measured=[
            measured("slow_depth", max(slow for slow, _ in depths), Unit.TOKENS),
            measured("fast_depth", max(fast for _, fast in depths), Unit.TOKENS),
            derived("asked", 2 * NUM_EACH, Unit.REQUESTS),
            derived("shared_failed", _failed(shared), Unit.REQUESTS),
            derived("per_call_failed", _failed(per_call), Unit.REQUESTS),
        ],
        picture=Picture(
            series=("slow", "fast"),
            bars=[[float(slow), float(fast)] for slow, fast in depths],
            unit=Unit.TOKENS,
        ),
    )


async def _slow_reader(ground: Ground, engine: Backend) -> list[tuple[int, int]]:
    """Tokens that wait for the one who pauses and for the other, at each sample."""
    slow = GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt=await prompt_of(engine, 4, seed=1),
        sampling=SamplingParams(max_tokens=READ_TOKENS, temperature=0.0, ignore_eos=True),
        source=Source.WORKLOAD,
    )
    fast = now(await prompt_of(engine, 4, seed=2), READ_TOKENS)
    version, goes_on = engine.recorder.version, asyncio.Event()
    await engine.control(ControlAction.PAUSE)
    async with asyncio.TaskGroup() as reading:
        reading.create_task(_read_one_then_wait(engine, slow, goes_on))
        await arrivals(engine, version, 1)
        try:
            run = await ground.run(engine, [fast])
        finally:
            goes_on.set()
    records = [entry.record for entry in engine.recorder.since(version)]
    return _depths(records, slow.request_id, run.request_ids[0])


async def _read_one_then_wait(engine: Backend, request: GenerationRequest, goes_on: asyncio.Event) -> None:
    async with aclosing(engine.generate(request)) as chunks:
        async for _ in chunks:
            await goes_on.wait()


def _depths(records: list[AnyRecord], slow: str, fast: str) -> list[tuple[int, int]]:
    """At each sample until the fast reader's request has ended."""
    depths = []
    for record in records:
        if isinstance(record, RequestFinished) and record.request_id == fast:
            break
        if isinstance(record, QueueSample) and {slow, fast} <= record.streams.keys():
            depths.append((record.streams[slow], record.streams[fast]))
    return depths


async def _mixed(ground: Ground, engine: Backend) -> list[Run]:
    """The run of whole answers and that of streams, which two loops serve side by side. The streams come
    when the whole answers' loop has sent its first call, and is late to wait for the result."""
    planned = [now(await prompt_of(engine, 4, seed=number), MIXED_TOKENS) for number in range(NUM_EACH)]
    version = engine.recorder.version
    await engine.control(ControlAction.PAUSE)
    async with asyncio.TaskGroup() as asking:

        def ask(*, stream: bool) -> asyncio.Task[Run]:
            run = ground.run(engine, planned, stream=stream, together=False, may_fail=True)
            return asking.create_task(run)

        whole = ask(stream=False)
        await arrivals(engine, version, NUM_EACH)
        await engine.control(ControlAction.RESUME)
        streams = ask(stream=True)
    return [whole.result(), streams.result()]


def _failed(runs: list[Run]) -> int:
    return sum(not timeline.is_complete for run in runs for timeline in timelines(run))
