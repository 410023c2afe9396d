"""Which pictures there are, and where they lie. All of them come from recordings in ``assets/traces/`` or
from parts of the page that no engine writes into."""

from __future__ import annotations

from pathlib import Path

from pictures.camera import Shot

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
FONT_WIDTHS = FOLDER / "fonts.json"
"""``font_widths`` of the machine where they were taken."""
THEMES = ("light", "dark")

REPLAY = (".traces-badge", "#replay .js-plotly-plot .main-svg")
ENGINE = ("#header-model:has-text('·')", "#header-watching:has-text('1 ')")
"""The first engine is up, and the page before this one is gone."""


def panels(name: str, recording: str, step: int) -> Shot:
    """The four panels at a step of a recording."""
    return Shot(name, f"trace={recording}&step={step}&view=panels", REPLAY, height=860)


ALBUM = (
    panels("naive", "naive-batch", 21),
    panels("paged", "paged-preemption", 52),
    panels("vllm", "vllm-preemption", 16),
    Shot("lesson", "tab=lessons&lesson=shape-of-a-batch", (*ENGINE, "#lessons-root .lessons-place > *")),
    Shot("sizing", "tab=sizing", (*ENGINE, "#sizing-root .sizing-bar")),
    Shot("traces", "trace=paged-room&step=44", (*ENGINE, *REPLAY), height=800),
)


def path_of(name: str, theme: str) -> Path:
    return FOLDER / f"{name}-{theme}.webp"
