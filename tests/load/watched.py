"""One real browser beside a load, for minutes: how late its pixels are, and whether anything grows."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tests.load.browser import LivePage, Pixels, Weight, live_page
from tests.load.crossing import Sizes
from tests.load.crowd import Crowd, http_client
from tests.load.figures import rate, rate_between, summary
from tests.load.log import EngineLog
from tests.load.server import Cost, Server
from tests.load.watching import room

SAMPLE_INTERVAL = 10.0
"""Seconds between two looks at the memory."""
SETTLING = 2.0


class Sample(msgspec.Struct, frozen=True):
    """One look at who holds what."""

    time: float
    """Seconds since the load began."""
    server: Cost
    page: Weight


class Watched(msgspec.Struct):
    sizes: Sizes
    begin: float
    end: float
    pixels: list[Pixels]
    samples: list[Sample]
    problems: list[str]
    """Of the answers, by who asked."""


async def watch(server: Server, sizes: Sizes, seconds: float, *, history: float | None = None) -> Watched:
    """The crowd asks and a room looks on. One of the viewers is a browser, with so many MiB of history."""
    async with (
        http_client(server.address) as client,
        room(server, max(1, sizes.viewers - 1)),
        live_page(server.address, server.backend, history=history) as page,
    ):
        crowd = Crowd(client, server.backend, chats=sizes.chats, streams=sizes.streams)
        begin = time.monotonic()
        asking = asyncio.create_task(crowd.ask_for(seconds))
        await asyncio.sleep(SETTLING)
        await page.begin()
        pixels, samples = await _look_on(server, page, begin, begin + seconds)
        end = time.monotonic()
        await asking
    problems = [f"{a.question.route} {a.question.client}: {a.problem}" for a in crowd.answers if a.problem]
    return Watched(sizes, begin, end, pixels, samples, problems)


async def _look_on(
    server: Server, page: LivePage, begin: float, end: float
) -> tuple[list[Pixels], list[Sample]]:
    pixels, samples = [], []
    while (now := time.monotonic()) < end:
        await asyncio.sleep(min(SAMPLE_INTERVAL, end - now))
        pixels.append(await page.pixels())  # before the look at the heap, which stops the page
        samples.append(Sample(time.monotonic() - begin, server.cost(), await page.weight()))
        await page.pixels()  # what came while it stood still is not counted
    return pixels, samples


def result(watched: Watched, log: EngineLog) -> dict[str, Any]:
    """Lateness and draws of all spans between two looks at the memory, and the memory itself."""
    lateness = [value for span in watched.pixels for value in span.lateness]
    draws = [pace for span in watched.pixels if (pace := rate(span.draws)) is not None]
    steps = [step.start_time for step in log.steps()]
    return {
        "asked": msgspec.to_builtins(watched.sizes),
        "seconds": watched.end - watched.begin,
        "record_to_pixel_seconds": summary(lateness),
        "draws_a_second": summary(draws),
        "steps_a_second": rate_between(steps, watched.begin, watched.end),
        "tokens_a_second": rate_between(log.token_times(), watched.begin, watched.end),
        "clock_error_seconds": max(span.clock_error for span in watched.pixels),
        "growth_mib_a_minute": growth(watched.samples),
        "memory": [msgspec.to_builtins(sample) for sample in watched.samples],
        "faults": watched.problems,
    }


def growth(samples: list[Sample]) -> dict[str, float] | None:
    """MiB a minute, as a straight line through the second half; ``None`` for too few looks. The first half
    fills what is bounded: logs, caches, pools."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return None
    return {
        name: statistics.linear_regression(*zip(*curve, strict=True)).slope
        for name, curve in _curves(half).items()
    }


def memory_curves(watched: Watched) -> dict[str, list[tuple[float, float]]]:
    """Minutes and MiB, for each process and for the page's heap."""
    return _curves(watched.samples)


def _curves(samples: list[Sample]) -> dict[str, list[tuple[float, float]]]:
    holders: dict[str, Callable[[Sample], float]] = {
        "web process": lambda sample: sample.server.web_memory,
        "engine": lambda sample: sample.server.engine_memory,
        "browser, all of it": lambda sample: sample.page.memory,
        "the page's heap": lambda sample: sample.page.heap,
        "the heap without the history": lambda sample: sample.page.heap - sample.page.history,
    }
    return {name: [(sample.time / 60, of(sample)) for sample in samples] for name, of in holders.items()}
