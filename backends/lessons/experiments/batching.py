"""What a batch looks like, and what it costs to make it badly."""

from __future__ import annotations

from backends.lessons.facts import steps_of, tokens_scheduled, width
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now

ROOM = {"max_model_len": 1024, "max_tokens": 512}
"""What experiments need, whatever the operator's limits for chats are."""

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
