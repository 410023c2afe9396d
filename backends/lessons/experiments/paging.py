"""What a pool of blocks does when it runs out, and what reserving for the longest costs."""

from __future__ import annotations

from backends.books import books_of
from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import num_finished, steps_of, timelines, tokens_scheduled
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.metrics import RequestTimeline
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
    """Blocks that each request holds while a step runs. One that is preempted has given its blocks back
    before, one that ends does so after."""
    held = dict.fromkeys(run.request_ids, 0)
    bars = []
    for step in steps_of(run):
        assert step.kv is not None, "the paged engine tells its blocks"
        for request_id, blocks in step.kv.taken.items():
            held[request_id] += len(blocks)
        for request_id in step.preempted_ids:
            held[request_id] = 0
        bars.append([float(count) for count in held.values()])
        for request_id in step.finished_ids:
            held[request_id] = 0
    return bars


RESERVED_PROMPT = 20
RESERVED_OUTPUT = 32


async def reserving(ground: Ground) -> Outcome:
    """The same request where slots are reserved for the longest text, and where blocks are taken."""
    async with ground.engine("generate", **ROOM) as engine:
        planned = [now(await prompt_of(engine, RESERVED_PROMPT, seed=1), RESERVED_OUTPUT)]
        [reserved] = timelines(await ground.run(engine, planned))
    async with ground.engine("paged", num_blocks=64, block_size=BLOCK_SIZE, **ROOM) as engine:
        [blocks] = timelines(await ground.run(engine, planned), engine.recorder.header)
    of_reserved, of_blocks = _slots(reserved), _slots(blocks)
    return Outcome(
        measured=[
            derived("reserved_share", of_reserved[0] / of_reserved[1], Unit.SHARE),
            measured("reserved_filled", of_reserved[0], Unit.SLOTS),
            measured("reserved_slots", of_reserved[1], Unit.SLOTS),
            derived("blocks_share", of_blocks[0] / of_blocks[1], Unit.SHARE),
            measured("blocks_filled", of_blocks[0], Unit.SLOTS),
            derived("blocks_slots", of_blocks[1], Unit.SLOTS),
        ],
        picture=Picture(
            series=("filled", "empty"),
            bars=[[float(filled), float(slots - filled)] for filled, slots in (of_reserved, of_blocks)],
            unit=Unit.SLOTS,
            stacked=True,
        ),
    )


def _slots(timeline: RequestTimeline) -> tuple[int, int]:
    """Most that held K and V, and most that were set aside."""
    assert timeline.filled_slots is not None, "both engines tell"
    assert timeline.reserved_slots is not None, "both engines tell"
    return timeline.filled_slots, timeline.reserved_slots
