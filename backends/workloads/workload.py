"""A workload: how many ask, when, how much. Plain data, so that it can be saved, linked and repeated.

The same workload with the same seed is the same list of requests, on every machine.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Annotated

import msgspec

MOST_STUDENTS = 64
LONGEST_WINDOW = 120.0

Words = Annotated[int, msgspec.Meta(ge=1, le=2000)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=4096)]

WORDS = ("river", "stone", "market", "garden", "engine", "window", "letter", "summer", "bridge", "paper")
"""What prompts are made of: each is one token or two for most tokenizers."""


class Arrivals(StrEnum):
    BURST = "burst"
    """All at once."""
    UNIFORM = "uniform"
    """Evenly over the window."""
    POISSON = "poisson"
    """At random moments of the window, as people come."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Students in one room, each with one question."""

    students: Annotated[int, msgspec.Meta(ge=1, le=MOST_STUDENTS)] = 16
    arrivals: Arrivals = Arrivals.BURST
    window: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WINDOW)] = 0.0
    """Seconds over which they come; a burst has none."""
    prompt_words: tuple[Words, Words] = (8, 24)
    """Fewest and most words of a question."""
    shared_words: Annotated[int, msgspec.Meta(ge=0, le=2000)] = 0
    """Words that all questions begin with."""
    output_tokens: Annotated[tuple[Tokens, ...], msgspec.Meta(min_length=1, max_length=MOST_STUDENTS)] = (32,)
    """How long the answers are, one after the other and again from the start."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a plan."""

    at: float
    """Seconds after the start."""
    prompt: str
    max_tokens: int


def warm_up(planned: Planned) -> Planned:
    """The same at once, and soon ended: the first forward pass of a process is slower than all others."""
    return msgspec.structs.replace(planned, at=0.0, max_tokens=2)


def plan(workload: Workload) -> list[Planned]:
    """The requests, in order of arrival."""
    draw = random.Random(workload.seed)
    shared = [draw.choice(WORDS) for _ in range(workload.shared_words)]
    requests = []
    for number, at in enumerate(_arrivals(workload, draw)):
        own = [draw.choice(WORDS) for _ in range(draw.randint(*sorted(workload.prompt_words)))]
        requests.append(
            Planned(
                at=at,
                prompt=" ".join([*shared, f"Student {number + 1} asks:", *own]),
                max_tokens=workload.output_tokens[number % len(workload.output_tokens)],
            )
        )
    return requests


def _arrivals(workload: Workload, draw: random.Random) -> list[float]:
    count, window = workload.students, workload.window
    match workload.arrivals:
        case Arrivals.BURST:
            return [0.0] * count
        case Arrivals.UNIFORM:
            return [window * number / count for number in range(count)]
        case Arrivals.POISSON:
            # Given how many come, the moments of a Poisson process are independent and uniform.
            return sorted(draw.uniform(0, window) for _ in range(count))
