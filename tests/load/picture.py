"""Memory over time as an SVG that is readable on a light and on a dark page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 28, 44
COLOURS = ("#2b7bba", "#c8641e", "#2e8b57", "#a3439b")
"""Of middle lightness: at least 3 to 1 against white and against black."""
INK = "#808080"

Curve = Sequence[tuple[float, float]]
"""Minutes and MiB."""


def memory_picture(title: str, curves: Mapping[str, Curve]) -> str:
    """A line for each curve, its name and its last value beside its end."""
    most = max(value for curve in curves.values() for _, value in curve)
    last = max(minute for curve in curves.values() for minute, _ in curve)
    step_y, step_x = nice_step(most / 4), nice_step(last / 6)
    top = math.ceil(most / step_y) * step_y

    def x(minute: float) -> float:
        return LEFT + minute / last * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 16, title, weight="600")]
    for number in range(round(top / step_y) + 1):
        parts.append(_line(LEFT, y(number * step_y), WIDTH - RIGHT, y(number * step_y), 0.25))
        parts.append(_text(LEFT - 8, y(number * step_y) + 4, f"{number * step_y:,.4g}", "end"))
    for number in range(int(last / step_x) + 1):
        parts.append(_line(x(number * step_x), HEIGHT - BOTTOM, x(number * step_x), HEIGHT - BOTTOM + 5, 0.8))
        parts.append(_text(x(number * step_x), HEIGHT - BOTTOM + 20, f"{number * step_x:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "minutes of load", "middle"))
    parts.append(_text(LEFT - 8, TOP - 8, "MiB", "end"))
    places = spread([y(curve[-1][1]) for curve in curves.values()], 34)
    for (name, curve), colour, place in zip(curves.items(), COLOURS, places, strict=False):
        points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT + 8, place, name, fill=colour, weight="600"))
        parts.append(_text(WIDTH - RIGHT + 8, place + 14, f"{curve[-1][1]:,.0f} MiB at the end", fill=colour))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(title)}" font-family="sans-serif" font-size="12">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def spread(places: Sequence[float], apart: float, limit: float = HEIGHT - BOTTOM) -> list[float]:
    """The same places, moved as little as keeps them so far apart and above the limit."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved, above = list(places), -math.inf
    for index in order:
        above = moved[index] = max(moved[index], above + apart)
    below = limit
    for index in reversed(order):
        moved[index] = min(moved[index], below)
        below = moved[index] - apart
    return moved


def _text(x: float, y: float, words: str, anchor: str = "start", fill: str = INK, weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">'
        f"{html.escape(words)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{INK}" stroke-opacity="{opacity}"/>'
    )
