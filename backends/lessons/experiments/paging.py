"""What a pool of blocks does when it runs out, and what reserving for the longest costs."""

from __future__ import annotations

from backends.books import books_of
from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import num_finished, steps_of, timelines, tokens_scheduled
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.workloads.run import Run

BLOCK_SIZE = 16
NUM_BLOCKS = 8
NUM_REQUESTS = 3
PROMPT_TOKENS = 20
OUTPUT_TOKENS = 44


async def running_out(ground: Ground) -> Outcome:
    """Three requests that come to need 12 blocks, in a pool of 8."""
    async with ground.engine("paged", **ROOM, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE) as engine:
        planned = [
            now(await prompt_of(engine, PROMPT_TOKENS, seed=number), OUTPUT_TOKENS)
            for number in range(NUM_REQUESTS)
        ]
        run = await ground.run(engine, planned)
    steps = steps_of(run)
    preemptions = [len(timeline.preemption_times) for timeline in timelines(run)]
    return Outcome(
        measured=[
            measured("steps", len(steps), Unit.STEPS),
            derived("steps_alone", OUTPUT_TOKENS, Unit.STEPS),
            derived("preemptions", sum(preemptions), Unit.COUNT),
            derived("preempted_requests", sum(count > 0 for count in preemptions), Unit.REQUESTS),
            measured("finished", num_finished(run), Unit.REQUESTS),
            derived("recomputed_tokens", books_of(run.records).total.recomputed_tokens, Unit.TOKENS),
            derived("tokens_computed", tokens_scheduled(steps), Unit.TOKENS),
        ],
        picture=Picture(
            series=("first", "second", "third"), bars=_blocks(run), unit=Unit.BLOCKS, stacked=True
        ),
    )


def _blocks(run: Run) -> list[list[float]]:
    """Blocks that each request holds after each step; those given back at its end are still in it."""
    held = dict.fromkeys(run.request_ids, 0)
    bars = []
    for step in steps_of(run):
        assert step.kv is not None, "the paged engine tells its blocks"
        for request_id, blocks in step.kv.taken.items():
            held[request_id] += len(blocks)
        bars.append([float(count) for count in held.values()])
        for request_id, blocks in step.kv.given_back.items():
            held[request_id] -= len(blocks)
    return bars
