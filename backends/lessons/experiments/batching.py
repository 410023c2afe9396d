"""What a batch looks like, and what it costs to make it badly."""

from __future__ import annotations

from backends.base import Backend
from backends.lessons.facts import most_rows, steps_of, tokens_scheduled, width
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.records import Phase, StepRecord
from backends.workloads.workload import Planned

ROOM = {"max_model_len": 1024, "max_tokens": 512}
"""What experiments need, whatever the operator's limits for chats are."""
VLLM_SHARE = 0.3
"""Of a GPU's memory, for a vLLM of an experiment's own: the operator's may hold half of it."""

SHAPE_PROMPTS = ("Once upon a time", "The capital of France")
SHAPE_TOKENS = 22


async def shape_of_a_batch(ground: Ground) -> Outcome:
    """Two prompts, one batch, no cache: the rows grow by a token a step."""
    async with ground.engine("naive", batch_size=len(SHAPE_PROMPTS), **ROOM) as engine:
        run = await ground.run(engine, [now(prompt, SHAPE_TOKENS) for prompt in SHAPE_PROMPTS])
    steps = steps_of(run)
    return Outcome(
        measured=[
            measured("last_width", width(steps[-1]), Unit.TOKENS),
            measured("first_width", width(steps[0]), Unit.TOKENS),
            measured("rows", len(steps[0].rows), Unit.ROWS),
            measured("steps", len(steps), Unit.STEPS),
            derived("tokens_computed", tokens_scheduled(steps), Unit.TOKENS),
            derived("tokens_made", SHAPE_TOKENS * len(SHAPE_PROMPTS), Unit.TOKENS),
        ],
        picture=Picture(series=("width",), bars=[[float(width(step))] for step in steps], unit=Unit.TOKENS),
    )


LONG_PROMPT = 100
NUM_SHORT = 7


async def padding(ground: Ground) -> Outcome:
    """One prompt of 100 tokens and seven of one, in one batch without a cache."""
    async with ground.engine("naive", batch_size=NUM_SHORT + 1, **ROOM) as engine:
        prompts = [await prompt_of(engine, LONG_PROMPT, seed=1)]
        prompts += [await prompt_of(engine, 1, seed=number) for number in range(NUM_SHORT)]
        run = await ground.run(engine, [now(prompt, 2) for prompt in prompts])
    first = steps_of(run)[0]
    rows = [row.num_scheduled_tokens for row in first.rows]
    empty = first.num_padding_tokens or 0
    return Outcome(
        measured=[
            measured("padding", empty, Unit.TOKENS),
            derived("real", sum(rows), Unit.TOKENS),
            derived("positions", len(rows) * width(first), Unit.TOKENS),
            derived("share", empty / (len(rows) * width(first)), Unit.SHARE),
        ],
        picture=Picture(
            series=("real", "padding"),
            bars=[[float(length), float(width(first) - length)] for length in rows],
            unit=Unit.TOKENS,
            stacked=True,
        ),
    )


PROMPT = 8
OUTPUTS = (32, 128, 64, 256)
NO_MORE_ROOM = {"max_model_len": PROMPT + max(OUTPUTS), "max_tokens": max(OUTPUTS)}
"""``model.generate()`` attends to all slots that it reserved, used or not: with 1,024 of them for each row
the batch took twice as long."""


async def static_batch(ground: Ground) -> Outcome:
    """Four answers of unequal length: in one static batch, and batched anew at every step."""
    async with ground.engine("generate", batch_size=len(OUTPUTS), **NO_MORE_ROOM) as engine:
        planned = [now(await prompt_of(engine, PROMPT, seed=length), length) for length in OUTPUTS]
        static = steps_of(await ground.run(engine, planned, mode="static"))
    async with ground.engine("paged", num_blocks=128, **ROOM) as engine:
        continuous = steps_of(await ground.run(engine, planned))
    slots = sum(len(step.rows) for step in static)
    useful = _useful_rows(static)
    return Outcome(
        measured=[
            derived("useful", useful, Unit.ROWS),
            derived("slots", slots, Unit.ROWS),
            derived("useful_share", useful / slots, Unit.SHARE),
            measured("steps", len(static), Unit.STEPS),
            derived("continuous_rows", sum(len(step.rows) for step in continuous), Unit.ROWS),
            derived("continuous_useful", _useful_rows(continuous), Unit.ROWS),
        ],
        picture=Picture(
            series=("useful", "wasted"),
            bars=[
                [float(_useful_rows([step])), float(len(step.rows) - _useful_rows([step]))] for step in static
            ],
            unit=Unit.ROWS,
            stacked=True,
        ),
    )


def _useful_rows(steps: list[StepRecord]) -> int:
    """Rows of answers that somebody still waited for."""
    return sum(row.phase is not Phase.FINISHED for step in steps for row in step.rows)


NUM_CALLS = 4
CALL_TOKENS = 8


async def waiting_client(ground: Ground) -> Outcome:
    """Four requests by a client that waits for each answer, then by one that does not."""
    async with ground.engine("paged", num_blocks=64, **ROOM) as engine:
        planned = await _calls(engine)
        in_turn = [await ground.run(engine, [request], together=False) for request in planned]
        at_once = await ground.run(engine, planned)
    return _in_turn_against_at_once([step for run in in_turn for step in steps_of(run)], steps_of(at_once))


async def blocking_mode(ground: Ground) -> Outcome:
    """Four requests that come together, to vLLM's blocking call and to its asynchronous one."""
    async with ground.engine("vllm", num_blocks=96, gpu_memory_utilization=VLLM_SHARE, **ROOM) as engine:
        planned = await _calls(engine)
        blocking = await ground.run(engine, planned, mode="blocking", together=False)
        at_once = await ground.run(engine, planned, mode="async", waiting_queue="waiting")
    return _in_turn_against_at_once(steps_of(blocking), steps_of(at_once))


async def _calls(engine: Backend) -> list[Planned]:
    return [now(await prompt_of(engine, 8, seed=number), CALL_TOKENS) for number in range(NUM_CALLS)]


def _in_turn_against_at_once(in_turn: list[StepRecord], at_once: list[StepRecord]) -> Outcome:
    return Outcome(
        measured=[
            measured("in_turn_steps", len(in_turn), Unit.STEPS),
            measured("at_once_steps", len(at_once), Unit.STEPS),
            measured("in_turn_rows", most_rows(in_turn), Unit.ROWS),
            measured("at_once_rows", most_rows(at_once), Unit.ROWS),
            derived("in_turn_time", sum(step.duration for step in in_turn), Unit.SECONDS),
            derived("at_once_time", sum(step.duration for step in at_once), Unit.SECONDS),
        ],
        picture=Picture(
            series=("in_turn", "at_once"),
            bars=[
                *([float(len(step.rows)), 0.0] for step in in_turn),
                *([0.0, float(len(step.rows))] for step in at_once),
            ],
            unit=Unit.ROWS,
            stacked=True,
        ),
    )
