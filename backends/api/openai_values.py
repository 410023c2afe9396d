"""What OpenAI's API writes in several ways, each read as one: prompts, stop strings, a message's text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from backends.api.body import encodable
from backends.api.errors import LONGEST_ECHO

MOST_STOPS = 4

Prompt = str | tuple[int, ...]
"""A text, or the ids of its tokens."""


def _as_texts(value: Any) -> Any:
    """A text or a list of texts → a tuple."""
    texts = [value] if isinstance(value, str) else value
    if not _is_list_of(str, texts):
        raise ValueError("it must be a text or a list of texts")
    return tuple(encodable(text) for text in texts)


def _as_prompts(value: Any) -> Any:
    """A text, token ids, or a list of either → a tuple of prompts."""
    if value and _is_list_of(int, value):
        return (tuple(value),)
    if value and isinstance(value, list) and all(_is_list_of(int, ids) for ids in value):
        return tuple(tuple(ids) for ids in value)
    if not isinstance(value, str) and not _is_list_of(str, value):
        raise ValueError("it must be a text, a list of token ids, or a list of either")
    return _as_texts(value)


def _is_list_of(kind: type, value: Any) -> bool:
    """``True`` is no token id."""
    return isinstance(value, list) and all(type(item) is kind for item in value)


def _as_stops(value: Any) -> Any:
    stops = () if value is None else _as_texts(value)
    if len(stops) > MOST_STOPS:
        raise ValueError(f"{len(stops)} stop strings; at most {MOST_STOPS} are taken")
    if "" in stops:
        raise ValueError("a stop string is empty")
    return stops


def _join_parts(content: Any) -> Any:
    """Text parts are one text. Anything else is refused by name."""
    if not isinstance(content, list):
        return content
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise ValueError(f"only parts of type 'text' are taken, not {ascii(kind)[:LONGEST_ECHO]}")
        if not isinstance(part.get("text"), str) or part.keys() != {"type", "text"}:
            raise ValueError("a text part has the fields type and text, and nothing else")
    return "".join(part["text"] for part in content)


def _not_empty(value: Any) -> Any:
    if not value:
        raise ValueError("there are none")
    return value


NotEmpty = AfterValidator(_not_empty)
Prompts = Annotated[tuple[Prompt, ...], BeforeValidator(_as_prompts), NotEmpty]
Stops = Annotated[tuple[str, ...], BeforeValidator(_as_stops)]
Content = Annotated[str, BeforeValidator(_join_parts), AfterValidator(encodable)]
