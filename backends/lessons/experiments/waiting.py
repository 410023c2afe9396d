"""Who waits for what: for a turn, for the first token, for somebody else's prompt."""

from __future__ import annotations

import asyncio
from itertools import zip_longest

from backends.base import Backend
from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import known, most_rows, rows_of, steps_of, timelines, tokens_scheduled
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.metrics import Summary
from backends.records import Phase, TokenEmitted
from backends.workloads.run import Run
from backends.workloads.workload import warm_up

CROWD = 6
CROWD_TOKENS = 8


async def one_at_a_time(ground: Ground) -> Outcome:
    """One request alone; then six of the same at once, on an engine that serves one at a time."""
    async with ground.engine("generate", **ROOM) as engine:
        planned = [now(await prompt_of(engine, 8, seed=number), CROWD_TOKENS) for number in range(CROWD)]
        await ground.run(engine, [warm_up(planned[0])])
        alone = await ground.run(engine, planned[:1])
        crowd = await ground.run(engine, planned)
    alone_e2e = known(timelines(alone)[0].e2e)
    of_crowd = timelines(crowd)
    waits = [known(timeline.e2e) for timeline in of_crowd]
    return Outcome(
        measured=[
            derived("last_ratio", max(waits) / alone_e2e, Unit.TIMES),
            derived("alone", alone_e2e, Unit.SECONDS),
            derived("crowd_first", min(waits), Unit.SECONDS),
            derived("crowd_last", max(waits), Unit.SECONDS),
            derived("last_queue", max(known(line.queue_time) for line in of_crowd), Unit.SECONDS),
            measured("rows", most_rows(steps_of(crowd)), Unit.ROWS),
        ],
        picture=Picture(
            series=("queued", "served"),
            bars=sorted(
                [known(line.queue_time), known(line.e2e) - known(line.queue_time)] for line in of_crowd
            ),
            unit=Unit.SECONDS,
            stacked=True,
        ),
    )


STREAM_TOKENS = 12


async def streaming(ground: Ground) -> Outcome:
    """The same answer twice on the same engine: token by token, and whole at its end."""
    async with ground.engine("naive", batch_size=1, **ROOM) as engine:
        planned = [now(await prompt_of(engine, 8, seed=1), STREAM_TOKENS)]
        await ground.run(engine, [warm_up(planned[0])])
        streamed = await ground.run(engine, planned)
        whole = await ground.run(engine, planned, stream=False)
    computed = tokens_scheduled(steps_of(streamed)), tokens_scheduled(steps_of(whole))
    [of_streamed], [of_whole] = timelines(streamed), timelines(whole)
    return Outcome(
        measured=[
            derived("work", _compare(*computed), Unit.CHOICE),
            derived("streamed_computed", computed[0], Unit.TOKENS),
            derived("whole_computed", computed[1], Unit.TOKENS),
            derived("streamed_first", known(of_streamed.ttft), Unit.SECONDS),
            derived("whole_first", known(of_whole.ttft), Unit.SECONDS),
            derived("streamed_last", known(of_streamed.e2e), Unit.SECONDS),
            derived("whole_last", known(of_whole.e2e), Unit.SECONDS),
        ]
    )


def _compare(one: int, other: int) -> str:
    """How the first stands to the second."""
    if one == other:
        return "same"
    return "less" if one < other else "more"


DECODER_TOKENS = 32
LONG_PREFILL = 400
ARRIVES_AFTER = 10
"""Tokens that those who decode have by then."""
BUDGETS = {"whole": 512, "chunked": 32}


async def long_prefill(ground: Ground) -> Outcome:
    """Two that decode when a prompt of 400 tokens comes: computed in one step, and in chunks of 32."""
    decoding, prefilling = {}, {}
    for name, budget in BUDGETS.items():
        decoding[name], prefilling[name] = await _meet_long_prompt(ground, budget)
    gaps = {name: _gaps(run) for name, run in decoding.items()}
    usual = _median(gaps["whole"])
    steps = {name: steps_of(run) for name, run in decoding.items()}
    return Outcome(
        measured=[
            derived("whole_ratio", max(gaps["whole"]) / usual, Unit.TIMES),
            derived("usual_gap", usual, Unit.SECONDS),
            derived("whole_gap", max(gaps["whole"]), Unit.SECONDS),
            derived("chunked_gap", max(gaps["chunked"]), Unit.SECONDS),
            derived("whole_most", max(tokens_scheduled([step]) for step in steps["whole"]), Unit.TOKENS),
            derived("chunked_most", max(tokens_scheduled([step]) for step in steps["chunked"]), Unit.TOKENS),
            derived("whole_steps", _prefill_steps(prefilling["whole"]), Unit.STEPS),
            derived("chunked_steps", _prefill_steps(prefilling["chunked"]), Unit.STEPS),
        ],
        picture=Picture(
            series=("whole", "chunked"),
            bars=[
                [one.duration if one else 0.0, other.duration if other else 0.0]
                for one, other in zip_longest(steps["whole"], steps["chunked"])
            ],
            unit=Unit.SECONDS,
        ),
    )


async def _meet_long_prompt(ground: Ground, budget: int) -> tuple[Run, Run]:
    """The run of those who decode, which lasts longer, and that of the long prompt."""
    async with ground.engine("paged", num_blocks=128, max_num_batched_tokens=budget, **ROOM) as engine:
        decoders = [now(await prompt_of(engine, 8, seed=number), DECODER_TOKENS) for number in range(2)]
        long_prompt = now(await prompt_of(engine, LONG_PREFILL, seed=7), 2)
        async with asyncio.TaskGroup() as running:
            version = engine.recorder.version
            decoding = running.create_task(ground.run(engine, decoders))
            await _tokens_made(engine, version, 2 * ARRIVES_AFTER)
            prefilling = running.create_task(ground.run(engine, [long_prompt], together=False))
    return decoding.result(), prefilling.result()


async def _tokens_made(engine: Backend, version: int, count: int) -> None:
    """Until that many tokens have left the engine."""
    async for entries in engine.recorder.follow(version):
        count -= sum(isinstance(entry.record, TokenEmitted) for entry in entries)
        if count <= 0:
            return


def _gaps(run: Run) -> list[float]:
    return [gap for timeline in timelines(run) for gap in timeline.itl]


def _median(values: list[float]) -> float:
    summary = Summary.of(values)
    assert summary is not None, "whoever decodes has gaps"
    return summary.p50


def _prefill_steps(run: Run) -> int:
    return sum(row.phase is Phase.PREFILL for row in rows_of(run, run.request_ids[0]))
