"""Memory over time as an SVG that is readable on a light and on a dark page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 380, 190
"""Of the picture of one curve; two stand side by side."""
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 40
LINE, INK = "#2f81c6", "#808080"
"""Of middle lightness: more than 3 to 1 against white and against black."""

Curve = Sequence[tuple[float, float]]
"""Minutes and MiB."""


def memory_picture(title: str, curves: Mapping[str, Curve]) -> str:
    """A picture for each curve, each with a scale of its own that begins at 0: growth is seen in all."""
    last = max(minute for curve in curves.values() for minute, _ in curve)
    pictures = [
        f'<g transform="translate({number % 2 * WIDTH} {number // 2 * HEIGHT})">\n'
        + "\n".join(_picture(name, curve, last))
        + "\n</g>"
        for number, (name, curve) in enumerate(curves.items())
    ]
    height = math.ceil(len(pictures) / 2) * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {height}" role="img" '
        f'aria-label="{html.escape(title)}" font-family="sans-serif" font-size="12">\n'
        + "\n".join(pictures)
        + "\n</svg>\n"
    )


def _picture(name: str, curve: Curve, last: float) -> list[str]:
    """Grid, axes, the line, and its name with its first and last value."""
    step_x, step_y = nice_step(last / 5), nice_step(max(value for _, value in curve) / 3)
    top = math.ceil(max(value for _, value in curve) / step_y) * step_y
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(minute: float) -> float:
        return LEFT + minute / last * (right - LEFT)

    def y(value: float) -> float:
        return floor - value / top * (floor - TOP)

    parts = [_text(LEFT, 18, f"{name}: {curve[0][1]:,.0f} → {curve[-1][1]:,.0f} MiB", weight="600")]
    for number in range(round(top / step_y) + 1):
        value = number * step_y
        parts += [
            _line(LEFT, y(value), right, y(value), 0.3),
            _text(LEFT - 8, y(value) + 4, f"{value:,.4g}", "end"),
        ]
    for number in range(int(last / step_x + 1e-9) + 1):
        minute = number * step_x
        parts += [_line(x(minute), floor, x(minute), floor + 4, 0.8)]
        parts += [_text(x(minute), floor + 18, f"{minute:.4g}", "middle")]
    parts.append(_text((LEFT + right) / 2, floor + 34, "minutes of load", "middle"))
    points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in curve)
    return [*parts, f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="2"/>']


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}" font-weight="{weight}">'
        f"{html.escape(words)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{INK}" stroke-opacity="{opacity}"/>'
    )
