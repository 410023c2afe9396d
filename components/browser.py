"""What the browser tells with an event: its language, and the secret id of this page load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from components.words import DEFAULT_LANGUAGE, LANGUAGES

_TELL = "{lang: document.documentElement.lang, visitor: window.servescope?.visitor ?? null}"

TELL_JS = f"(...inputs) => [...inputs.slice(0, -1), {_TELL}]"
"""The ``js`` of an event whose last input is ``create_browser()``."""


@dataclass(frozen=True)
class Browser:
    """Never trusted: anyone can send anything."""

    lang: str = DEFAULT_LANGUAGE
    visitor: str | None = None

    @classmethod
    def from_event(cls, told: Any) -> Browser:
        told = told if isinstance(told, dict) else {}
        lang, visitor = told.get("lang"), told.get("visitor")
        return cls(
            lang=lang if lang in LANGUAGES else DEFAULT_LANGUAGE,
            visitor=visitor if isinstance(visitor, str) and 0 < len(visitor) <= 100 else None,
        )


def create_browser() -> gr.JSON:
    """The place of that answer among an event's inputs. It is not drawn and holds nothing."""
    return gr.JSON(visible=False)
