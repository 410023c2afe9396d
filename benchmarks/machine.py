"""What the machine could do at best: each figure of an engine stands beside its limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Measured on the machine that runs the benchmark, with as many threads as the engines get."""

    bandwidth: float
    """Bytes a second, reading a tensor of the model's size."""
    multiply_rates: dict[int, float]
    """Rows → floating point operations a second, of a product with a weight that stays in the cache."""


def measure(rows: list[int], threads: int) -> Limits:
    """Takes a few seconds."""
    import torch

    torch.set_num_threads(threads)
    big = torch.ones(128 * 2**20)
    seconds = best(lambda: big.sum())
    rates = {}
    for count in rows:
        x, weight = torch.ones(count, 512), torch.ones(512, 512)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, count)

        def multiply(x: torch.Tensor = x, packed: torch.Tensor = packed) -> None:
            for _ in range(200):
                torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")

        rates[count] = 200 * 2 * count * 512 * 512 / best(multiply)
    return Limits(big.nbytes / seconds, rates)


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Seconds: the least of some, since whatever else runs can only add."""
    times = []
    work()
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
