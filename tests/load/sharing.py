"""What a room of viewers costs the engine: the same load without and with them, in turns."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from itertools import pairwise
from typing import Any

import msgspec

from backends.records import StepRecord
from tests.load.crowd import Crowd, http_client
from tests.load.figures import rate_between
from tests.load.log import EngineLog
from tests.load.server import Server, cpu_seconds
from tests.load.watching import room

SETTLING = 2.0
"""Seconds after viewers came or went that are not measured."""


class Turn(msgspec.Struct, frozen=True):
    """A span of the load with so many viewers."""

    viewers: int
    begin: float
    end: float
    web: float
    """Cores that the server's web process kept busy."""
    engine: float
    client: float
    """Likewise the process of the viewers, which shares the machine with them here."""


async def in_turns(server: Server, *, streams: int, viewers: int, turns: int, seconds: float) -> list[Turn]:
    """A B, B A, A B … each for so many seconds, in one load that does not stop between them: what the machine
    does beside it, and how that changes, falls on both."""
    measured: list[Turn] = []
    async with http_client(server.address) as client:
        crowd = Crowd(client, server.backend, chats=0, streams=streams)
        asking = asyncio.create_task(crowd.ask_for(math.inf))  # nobody knows how long viewers take to open
        await asyncio.sleep(SETTLING)
        for pair in range(turns):
            order = (0, viewers) if pair % 2 == 0 else (viewers, 0)
            measured += [await _turn(server, count, seconds) for count in order]
        crowd.stop()
        await asking
    return measured


async def _turn(server: Server, viewers: int, seconds: float) -> Turn:
    if viewers == 0:
        return await _measure(server, 0, seconds)
    async with room(server, viewers, elsewhere=True) as watching:
        return await _measure(server, viewers, seconds, watching.pid)


async def _measure(server: Server, viewers: int, seconds: float, client: int | None = None) -> Turn:
    await asyncio.sleep(SETTLING)
    begin, before, looked = time.monotonic(), server.cost(), cpu_seconds(client) if client else 0
    await asyncio.sleep(seconds)
    end, after = time.monotonic(), server.cost()
    watched = cpu_seconds(client) - looked if client else 0
    web, engine = (part / (end - begin) for part in after.since(before))
    return Turn(viewers, begin, end, web=web, engine=engine, client=watched / (end - begin))


def result(turns: list[Turn], log: EngineLog) -> dict[str, Any]:
    """Tokens a second in each turn, and what share of them is left with viewers, pair by pair."""
    token_times = log.token_times()
    without = [turn for turn in turns if turn.viewers == 0]
    watched = [turn for turn in turns if turn.viewers > 0]
    speeds = [[rate_between(token_times, t.begin, t.end) for t in kind] for kind in (without, watched)]
    ratios = [with_ / without for without, with_ in zip(*speeds, strict=True)]
    extra = statistics.mean(t.web for t in watched) - statistics.mean(t.web for t in without)
    return {
        "viewers": watched[0].viewers,
        "tokens_a_second_without": speeds[0],
        "tokens_a_second_with": speeds[1],
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "ratio_of_all": sum(speeds[1]) / sum(speeds[0]),
        "steps_without": _steps(log.steps(), without),
        "steps_with": _steps(log.steps(), watched),
        "web_cores_for_each_viewer": extra / watched[0].viewers,
        "viewers_own_cores": statistics.mean(turn.client for turn in watched),
        "turns": msgspec.to_builtins(turns),
        "faults": [],
    }


def _steps(steps: list[StepRecord], turns: list[Turn]) -> dict[str, float]:
    """What the steps of these turns were like: medians of their time, and of what lies between two."""
    of_turns = [[step for step in steps if turn.begin <= step.start_time < turn.end] for turn in turns]
    measured = [step for of_turn in of_turns for step in of_turn]
    gaps = [
        after.start_time - before.start_time - before.duration
        for of_turn in of_turns
        for before, after in pairwise(of_turn)
    ]
    return {
        "rows": statistics.mean(len(step.rows) for step in measured),
        "seconds": statistics.median(step.duration for step in measured),
        "gap_seconds": statistics.median(gaps),
    }
