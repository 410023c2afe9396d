"""Prompts of a known length, for any tokenizer."""

from __future__ import annotations

import random

from backends.base import Backend
from backends.errors import InvalidRequest
from backends.workloads.workload import WORDS, Planned

SHORTEST_WORD = "a"
"""One token in every tokenizer that there is for English."""


async def prompt_of(engine: Backend, num_tokens: int, *, start: str = "", seed: int = 0) -> str:
    """Words that this engine's tokenizer makes exactly so many tokens of.

    ``start``: what it begins with, itself such a prompt. Another ``seed`` is another prompt.
    Raises ``InvalidRequest`` where no words come to that number.
    """
    draw = random.Random(seed)
    text, count = start, 0 if not start else await _count(engine, start)
    while count < num_tokens:
        for word in (draw.choice(WORDS), SHORTEST_WORD):
            longer = f"{text} {word}" if text else word
            if (count_of_longer := await _count(engine, longer)) <= num_tokens:
                break
        else:
            break
        text, count = longer, count_of_longer
    if count != num_tokens:
        raise InvalidRequest(f"No prompt of {num_tokens} tokens could be made; the nearest has {count}.")
    return text


async def _count(engine: Backend, text: str) -> int:
    count = await engine.count_prompt_tokens(text)
    if count is None:
        raise InvalidRequest(f"{engine.info.title} does not count tokens.")
    return count


def now(prompt: str, max_tokens: int) -> Planned:
    """A request that comes at once."""
    return Planned(at=0.0, prompt=prompt, max_tokens=max_tokens)
