"""How tokens are chosen, as the visitor sets it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from backends.base import SAMPLING_DEFAULTS, BackendInfo, SamplingParams
from backends.errors import InvalidRequest
from backends.settings import Settings
from components.words import PageWords, word

OPTIONAL = ("top_p", "top_k", "seed")
"""What not every engine honours; ``max_tokens`` and ``temperature`` all do."""


@dataclass(frozen=True)
class Sampling:
    temperature: gr.Slider
    max_tokens: gr.Slider
    top_p: gr.Slider
    top_k: gr.Slider
    seed: gr.Textbox

    @property
    def inputs(self) -> list[Component]:
        """In the order of ``sampling_params``'s arguments."""
        return [self.temperature, self.max_tokens, self.top_p, self.top_k, self.seed]

    @property
    def optional(self) -> Sequence[Component]:
        """In the order of ``OPTIONAL``."""
        return [self.top_p, self.top_k, self.seed]


def create_sampling(settings: Settings, page_words: PageWords) -> Sampling:
    default = SAMPLING_DEFAULTS

    def slider(name: str, low: float, high: float, step: float, value: float) -> gr.Slider:
        return gr.Slider(
            low,
            high,
            value=value,
            step=step,
            label=page_words(f"settings.{name}"),
            info=page_words(f"settings.{name}.info"),
            buttons=[],
            interactive=True,
            elem_id=f"settings-{name.replace('_', '-')}",
        )

    return Sampling(
        temperature=slider("temperature", 0, 2, 0.05, default.temperature),
        max_tokens=slider(
            "max_tokens", 1, settings.max_tokens, 1, min(default.max_tokens, settings.max_tokens)
        ),
        top_p=slider("top_p", 0.05, 1, 0.05, default.top_p),
        top_k=slider("top_k", 0, 200, 1, default.top_k),
        seed=gr.Textbox(  # a Number cannot be empty: it would turn into seed 0 by being looked at
            value="",
            max_lines=1,
            placeholder=page_words("settings.seed.placeholder"),
            label=page_words("settings.seed"),
            info=page_words("settings.seed.info"),
            interactive=True,
            elem_id="settings-seed",
        ),
    )


def sampling_updates(info: BackendInfo, lang: str) -> list[Any]:
    """What an engine does not honour cannot be set, and says why."""
    return [
        gr.update(
            interactive=name in info.supported,
            info=word(lang, f"settings.{name}.info")
            if name in info.supported
            else word(lang, "settings.unsupported", backend=info.title),
        )
        for name in OPTIONAL
    ]


def sampling_params(
    info: BackendInfo,
    temperature: float,
    max_tokens: float,
    top_p: float,
    top_k: float,
    seed: str | None,
) -> SamplingParams:
    """Settings → what the engine is asked for. What it does not honour was shown as disabled and
    stays at its default. Raises ``InvalidRequest`` for a seed that is none."""
    asked = {"top_p": float(top_p), "top_k": int(top_k), "seed": _seed((seed or "").strip())}
    return SamplingParams(
        temperature=float(temperature),
        max_tokens=int(max_tokens),
        **{name: value for name, value in asked.items() if name in info.supported},  # type: ignore[arg-type]
    )


def _seed(text: str) -> int | None:
    """Empty is random."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidRequest(
            f"The seed is {text!r}; it must be a whole number from 0, or empty.", field="seed"
        )
    return int(text)
