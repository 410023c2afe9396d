"""One mix, from the first request to the audit."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.records import RequestArrived, RequestFinished, StepRecord, TokenEmitted
from tests.load.mix.audit import Records, problems, settle
from tests.load.mix.clients import Notes, Visitor, come_and_go, races, trouble
from tests.load.mix.site import Site, mixed_site

CATCH_UP = 10.0
"""Seconds within which ``/metrics`` must have counted the last record."""

SHORT_REST, LONG_REST = (0.2, 1.5), (0.5, 8.0)
"""Seconds between two troubles of an engine; long for one that takes seconds to come back."""


@dataclass
class Outcome:
    """What happened, and what should not have."""

    figures: dict[str, Any]
    problems: list[str]


async def run_mix(
    folder: Path, seconds: float, seed: int, *, num_visitors: int = 12, with_vllm: bool = False
) -> Outcome:
    """Raises when a request does not end within its deadline."""
    async with mixed_site(folder, with_vllm=with_vllm) as site:
        records = {name: Records(engine) for name, engine in site.engines.items()}
        notes = Notes()
        await _everybody(site, notes, seconds, seed, num_visitors)
        await settle(site, notes)
        metrics = await _metrics(site)
        kept = {name: await each.close() for name, each in records.items()}
        found = list(problems(site, notes, kept, metrics))
    figures = {
        "seed": seed,
        "seconds": seconds,
        "sent": len(notes.sent),
        "ends": Counter(sent.end.value for sent in notes.sent if sent.end is not None),
        "races": len(notes.races),
        "pages_closed": notes.num_viewers,
        "controls": notes.controls,
        "engines": {
            name: {
                "arrived": sum(isinstance(record, RequestArrived) for record in all_of_it),
                "finished": Counter(r.reason.value for r in all_of_it if isinstance(r, RequestFinished)),
                "tokens": sum(isinstance(record, TokenEmitted) for record in all_of_it),
                "steps": sum(isinstance(record, StepRecord) for record in all_of_it),
                "preemptions": sum(len(r.preempted_ids) for r in all_of_it if isinstance(r, StepRecord)),
            }
            for name, all_of_it in kept.items()
        },
    }
    return Outcome(figures, [f"seed {seed}: {problem}" for problem in found])


async def _everybody(site: Site, notes: Notes, seconds: float, seed: int, num_visitors: int) -> None:
    await asyncio.gather(*(engine.start() for engine in site.engines.values()))
    until = asyncio.get_running_loop().time() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(num_visitors):
            group.create_task(Visitor(site, notes, f"{seed}/{number}").run(until))
        for name in site.engines:
            rest = LONG_REST if name == "vllm" else SHORT_REST
            group.create_task(trouble(site, notes, name, f"{seed}/{name}", until, rest))
        group.create_task(races(site, notes, f"{seed}/races", until))
        group.create_task(come_and_go(site, notes, f"{seed}/pages", until))


async def _metrics(site: Site) -> str:
    """Once the last record has been counted; an old text, to be found wanting, where it never is."""
    arrived = sum(
        engine.recorder.head().snapshot.totals.get("requests_finished", 0) for engine in site.engines.values()
    )
    deadline = asyncio.get_running_loop().time() + CATCH_UP
    async with site.client() as client:
        while True:
            text = (await client.get("/metrics")).text
            lines = [
                line for line in text.splitlines() if line.startswith("servescope_requests_finished_total")
            ]
            if sum(float(line.rpartition(" ")[2]) for line in lines) >= arrived:
                return text
            if asyncio.get_running_loop().time() > deadline:
                return text
            await asyncio.sleep(0.1)
