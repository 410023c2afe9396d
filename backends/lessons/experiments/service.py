"""More than one engine behind one door."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import timelines
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived
from backends.lessons.prompts import now, prompt_of
from backends.workloads.run import Run
from backends.workloads.workload import warm_up

NUM_REQUESTS = 8
REPLICA_TOKENS = 24
NUM_REPLICAS = 2


async def replicas(ground: Ground) -> Outcome:
    """Eight requests on one engine, then dealt in turn to two engines of the same machine."""
    async with AsyncExitStack() as up:
        engines = [
            await up.enter_async_context(ground.engine("paged", num_blocks=64, **ROOM))
            for _ in range(NUM_REPLICAS)
        ]
        planned = [
            now(await prompt_of(engines[0], 8, seed=number), REPLICA_TOKENS) for number in range(NUM_REQUESTS)
        ]
        for engine in engines:
            await ground.run(engine, [warm_up(planned[0])])
        alone = [await ground.run(engines[0], planned)]
        async with asyncio.TaskGroup() as sharing:
            runs = [
                sharing.create_task(ground.run(engine, planned[place::NUM_REPLICAS], together=False))
                for place, engine in enumerate(engines)
            ]
    shared = [run.result() for run in runs]
    rates = _rate(alone), _rate(shared)
    return Outcome(
        measured=[
            derived("ratio", rates[1] / rates[0], Unit.TIMES),
            derived("one_rate", rates[0], Unit.TOKENS_PER_SECOND),
            derived("two_rate", rates[1], Unit.TOKENS_PER_SECOND),
            derived("one_time", _duration(alone), Unit.SECONDS),
            derived("two_time", _duration(shared), Unit.SECONDS),
        ],
        picture=Picture(series=("rate",), bars=[[rates[0]], [rates[1]]], unit=Unit.TOKENS_PER_SECOND),
    )


def _duration(runs: list[Run]) -> float:
    """From the first arrival to the last token."""
    lines = [line for run in runs for line in timelines(run)]
    return max(line.token_times[-1] for line in lines) - min(line.arrived.time for line in lines)


def _rate(runs: list[Run]) -> float:
    return NUM_REQUESTS * REPLICA_TOKENS / _duration(runs)
