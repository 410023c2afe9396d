"""Figures of runs as Markdown, for REPORT.md: ``python -m tests.load.report RESULT.json …``."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


def crossing(run: Figures) -> Iterator[tuple[str, str]]:
    asked, answers = run["asked"], run["answers"]
    pace, late = run["chat_updates_a_second"], run["record_to_socket_seconds"]
    yield "At once", f"{asked['chats']} chats, {asked['streams']} streams, {asked['viewers']} viewers"
    yield "For", f"{run['seconds'] / 60:.1f} minutes"
    yield "Answers", ", ".join(f"{count:,} by {route}" for route, count in answers.items())
    yield "Lost, duplicated, crossed, or otherwise at fault", f"{len(run['faults'])}"
    yield "Records, each seen by every viewer", f"{run['records']:,}, with {run['skips']} skips to a snapshot"
    yield "Engine", f"{run['tokens_a_second']:.0f} tokens/s in {run['steps_a_second']:.1f} steps/s"
    yield "Cores busy", ", ".join(f"{part} {cores:.2f}" for part, cores in run["cores"].items())
    yield "Updates of the page for one answer", f"{_each(pace)} a second"
    yield "The most of them within any second", f"{run['most_chat_updates_within_a_second']}"
    yield "Updates of a viewer", f"{_each(run['updates_a_second_of_each_viewer'])} a second"
    yield "From record to socket", _milliseconds(late)


def sharing(run: Figures) -> Iterator[tuple[str, str]]:
    yield "Viewers", f"{run['viewers']}, against none, in {len(run['ratios'])} pairs of turns"
    yield "Tokens a second without", _list(run["tokens_a_second_without"], "{:.0f}")
    yield "Tokens a second with", _list(run["tokens_a_second_with"], "{:.0f}")
    yield "Ratio of each pair", _list(run["ratios"], "{:.3f}")
    yield "Median ratio; of all turns", f"{run['ratio']:.3f}; {run['ratio_of_all']:.3f}"
    yield (
        "The server's cost of a viewer",
        f"{1000 * run['web_cores_for_each_viewer']:.2f} thousandths of a core",
    )
    yield "The viewers' own process, on the same cores", f"{run['viewers_own_cores']:.3f} cores"


def watched(run: Figures) -> Iterator[tuple[str, str]]:
    asked, memory = run["asked"], run["memory"]
    yield (
        "Beside",
        f"{asked['chats']} chats, {asked['streams']} streams, {asked['viewers'] - 1} other viewers",
    )
    yield "For", f"{run['seconds'] / 60:.1f} minutes"
    yield "From record to pixel", _milliseconds(run["record_to_pixel_seconds"])
    yield "Clocks compared to within", f"{1000 * run['clock_error_seconds']:.1f} ms"
    yield "Draws of the batch panel", f"{_each(run['draws_a_second'])} a second"
    yield "Engine", f"{run['tokens_a_second']:.0f} tokens/s in {run['steps_a_second']:.1f} steps/s"
    for name, of in MEMORY.items():
        values = [of(sample) for sample in memory]
        yield name, f"{values[0]:,.0f} at first, {values[-1]:,.0f} at last, {max(values):,.0f} at most"
    for name, slope in (run["growth_mib_a_minute"] or {}).items():
        yield f"Growth of {name} in the second half", f"{slope:+.2f} MiB a minute"


MEMORY: dict[str, Callable[[Figures], float]] = {
    "Web process, MiB": lambda sample: sample["server"]["web_memory"],
    "Engine, MiB": lambda sample: sample["server"]["engine_memory"],
    "Browser, MiB": lambda sample: sample["page"]["memory"],
    "The page's heap, MiB": lambda sample: sample["page"]["heap"],
    "Its history to scrub through, MiB": lambda sample: sample["page"]["history"],
    "Nodes of its document": lambda sample: sample["page"]["nodes"],
    "Its event listeners": lambda sample: sample["page"]["listeners"],
}
PARTS = {"crossing": crossing, "sharing": sharing, "watched": watched}


def markdown(results: Figures) -> Iterator[str]:
    """A table for each part of one run."""
    for part, rows in PARTS.items():
        if part in results:
            yield f"`python -m tests.load {results['arguments']}`, on {results['machine']['cores']} cores:\n"
            yield "| What | Seen |\n|---|---|"
            yield from (f"| {name} | {value} |" for name, value in rows(results[part]))
            yield from (f"\nFault: {fault}" for fault in results[part]["faults"])
            yield ""


def _milliseconds(figures: Figures) -> str:
    if not figures["count"]:
        return "nothing measured"
    shares = ", ".join(f"{share} {1000 * figures[share]:.0f} ms" for share in ("p50", "p95", "p99", "max"))
    return f"{shares}, of {figures['count']:,}"


def _each(figures: Figures) -> str:
    return "none" if not figures["count"] else f"{figures['p50']:.1f} (median), {figures['max']:.1f} (most)"


def _list(values: list[float], form: str) -> str:
    return (
        f"{', '.join(form.format(value) for value in values)} (mean {form.format(statistics.mean(values))})"
    )


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print("\n".join(markdown(json.loads(Path(file).read_text(encoding="utf-8")))))
