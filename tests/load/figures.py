"""Figures of what was seen."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that ``share`` of all are not above; ``None`` without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def summary(values: Sequence[float]) -> dict[str, float | int | None]:
    return {
        "count": len(values),
        "p50": percentile(values, 0.5),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
        "max": max(values, default=None),
    }


def rate(times: Sequence[float]) -> float | None:
    """Events a second between the first and the last."""
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else None


def rate_between(times: Sequence[float], begin: float, end: float) -> float:
    """Events a second from ``begin`` to ``end``."""
    return sum(begin <= time < end for time in times) / (end - begin)


def most_within(times: Sequence[float], seconds: float) -> int:
    """The most events in any span of so many seconds."""
    most = first = 0
    for last, time in enumerate(times):
        while time - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
