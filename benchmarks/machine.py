"""What the machine could do at best: each figure of an engine stands beside its limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from backends.settings import Settings

if TYPE_CHECKING:
    import torch

    from backends.paged.fast.linear import Linear

REPEATS = 200
"""Products in one measurement: one alone takes microseconds."""


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
    read_seconds = best(lambda: big.sum())
    rates = {}
    for count in rows:
        x, weight = torch.ones(count, 512), torch.ones(512, 512)
        seconds = min(best(partial(_repeat, product(weight, None), x)) for product in _products())
        rates[count] = REPEATS * 2 * count * 512 * 512 / seconds
    return Limits(big.nbytes / read_seconds, rates)


def _products() -> list[Callable[[torch.Tensor, torch.Tensor | None], Linear]]:
    """Of what there is, the fastest counts: oneDNN's, and what this machine uses for ``paged``."""
    import torch

    from backends.paged.fast.kernels import ONEDNN, float32_kernels

    here = float32_kernels(torch.device("cpu"), Settings().cache_dir / "kernels")
    return [ONEDNN.linear, here.linear]


def _repeat(product: Linear, x: torch.Tensor) -> None:
    for _ in range(REPEATS):
        product(x)


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """Seconds: the least of some, since whatever else runs can only add."""
    times = []
    work()
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
