"""What was asked, what came back, and the questions themselves: no two clients ask the same."""

from __future__ import annotations

from enum import StrEnum

import msgspec

COLOURS = ("red", "green", "blue", "white", "black", "golden", "silver", "brown", "grey", "striped")
ANIMALS = ("fox", "whale", "owl", "horse", "bee", "tiger", "snail", "crow", "goat", "salmon", "bear", "moth")
ANSWER_TOKENS = (24, 32, 40)
"""A client's answers are of one of these lengths, so that requests come and go at different steps."""


class Route(StrEnum):
    """By which door a client comes in."""

    CHAT = "chat"
    """The page's own: Gradio's queue, as its client in the browser uses it."""
    OPENAI = "openai"
    """``/v1/chat/completions``, streaming."""
    TEACHING = "teaching"
    """``/generate_stream``."""


class Question(msgspec.Struct, frozen=True):
    route: Route
    client: int
    prompt: str
    max_tokens: int


class Answer(msgspec.Struct):
    """One answer as its client saw it."""

    question: Question
    request_id: str | None = None
    text: str = ""
    frame_times: list[float] = []
    """When something new to show came: tokens of a stream, updates of the page."""
    problem: str | None = None
    """Why it is no whole answer."""


def question(route: Route, client: int) -> Question:
    """The question of one client: always the same, and nobody else's."""
    number = list(Route).index(route) * 1_000 + client
    colour, animal = COLOURS[client % len(COLOURS)], ANIMALS[client // len(COLOURS) % len(ANIMALS)]
    prompt = f"Story number {number}, about the {colour} {animal} and what it did that day:"
    return Question(route, client, prompt, ANSWER_TOKENS[client % len(ANSWER_TOKENS)])
