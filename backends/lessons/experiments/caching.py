"""What is computed again without a cache, and what a cache finds."""

from __future__ import annotations

from itertools import zip_longest

from backends.lessons.experiments.batching import ROOM
from backends.lessons.facts import attention_pairs, known, rows_of, steps_of, timelines, tokens_scheduled
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.lessons.prompts import now, prompt_of
from backends.records import StepRecord

STORY = "Once upon a time"
STORY_TOKENS = 40


async def no_cache(ground: Ground) -> Outcome:
    """The same answer twice: every token computed again at every step, and kept."""
    async with ground.engine("naive", **ROOM) as engine:
        naive = steps_of(await ground.run(engine, [now(STORY, STORY_TOKENS)]))
    async with ground.engine("paged", num_blocks=64, **ROOM) as engine:
        cached = steps_of(await ground.run(engine, [now(STORY, STORY_TOKENS)]))
    pairs = attention_pairs(naive), attention_pairs(cached)
    return Outcome(
        measured=[
            derived("tokens_naive", tokens_scheduled(naive), Unit.TOKENS),
            derived("tokens_cached", tokens_scheduled(cached), Unit.TOKENS),
            derived("pairs_naive", pairs[0], Unit.PAIRS),
            derived("pairs_cached", pairs[1], Unit.PAIRS),
            derived("pairs_ratio", pairs[0] / pairs[1], Unit.TIMES),
            measured("last_step_naive", naive[-1].duration, Unit.SECONDS),
            measured("last_step_cached", cached[-1].duration, Unit.SECONDS),
        ],
        picture=Picture(
            series=("naive", "cached"),
            bars=[
                [float(_scheduled(one)), float(_scheduled(other))]
                for one, other in zip_longest(naive, cached)
            ],
            unit=Unit.TOKENS,
        ),
    )


def _scheduled(step: StepRecord | None) -> int:
    """0 where one of the two had ended."""
    return 0 if step is None else tokens_scheduled([step])


BLOCK_SIZE = 16
SHARED_TOKENS = 40
SHORT_SHARED_TOKENS = 12
PROMPT_TOKENS = 48


async def prefix_caching(ground: Ground) -> Outcome:
    """Three prompts, one after the other: the second shares 40 tokens with the first, the third 12."""
    async with ground.engine("paged", num_blocks=64, block_size=BLOCK_SIZE, **ROOM) as engine:
        short = await prompt_of(engine, SHORT_SHARED_TOKENS, seed=1)
        shared = await prompt_of(engine, SHARED_TOKENS, start=short, seed=2)
        prompts = [
            await prompt_of(engine, PROMPT_TOKENS, start=shared, seed=3),
            await prompt_of(engine, PROMPT_TOKENS, start=shared, seed=4),
            await prompt_of(engine, PROMPT_TOKENS, start=short, seed=5),
        ]
        runs = [await ground.run(engine, [now(prompt, 4)], together=False) for prompt in prompts]
    first_rows = [rows_of(run, run.request_ids[0])[0] for run in runs]
    cached = [row.num_cached_tokens or 0 for row in first_rows]
    ttft = [known(timelines(run)[0].ttft) for run in runs]
    return Outcome(
        measured=[
            measured("second_cached", cached[1], Unit.TOKENS),
            measured("second_computed", first_rows[1].num_scheduled_tokens, Unit.TOKENS),
            measured("third_cached", cached[2], Unit.TOKENS),
            measured("third_computed", first_rows[2].num_scheduled_tokens, Unit.TOKENS),
            derived("first_ttft", ttft[0], Unit.SECONDS),
            derived("second_ttft", ttft[1], Unit.SECONDS),
        ],
        picture=Picture(
            series=("cached", "computed"),
            bars=[
                [float(found), float(row.num_scheduled_tokens)]
                for found, row in zip(cached, first_rows, strict=True)
            ],
            unit=Unit.TOKENS,
            stacked=True,
        ),
    )
