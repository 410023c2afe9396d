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

    hardware: str
    """What was measured, in a line."""
    bandwidth: float
    """Bytes a second, reading a tensor of the model's size."""
    multiply_rates: dict[int, float]
    """Rows → floating point operations a second, of a product with a weight that stays in the cache. On a
    GPU, where such a product only waits, that of a large square one."""


def measure(rows: list[int], threads: int, device: str) -> Limits:
    """Takes a few seconds. ``device``: ``cpu`` or ``cuda``."""
    import torch

    from backends.torch_worker import describe_hardware

    torch.set_num_threads(threads)
    big = torch.ones(128 * 2**20, device=device)
    bandwidth = big.nbytes / best(lambda: big.sum(), wait=_wait_for(device))
    rates = _rates(rows) if device == "cpu" else dict.fromkeys(rows, _square_rate(device))
    return Limits(describe_hardware(device), bandwidth, rates)


def _rates(rows: list[int]) -> dict[int, float]:
    import torch

    rates = {}
    for count in rows:
        x, weight = torch.ones(count, 512), torch.ones(512, 512)
        seconds = min(best(partial(_repeat, product(weight, None), x)) for product in _products())
        rates[count] = REPEATS * 2 * count * 512 * 512 / seconds
    return rates


def _square_rate(device: str, size: int = 4096) -> float:
    import torch

    square = torch.ones(size, size, device=device)
    return 2 * size**3 / best(lambda: square @ square, wait=_wait_for(device))


def _wait_for(device: str) -> Callable[[], None]:
    """A GPU says it is done when it has only been told what to do."""
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _products() -> list[Callable[[torch.Tensor, torch.Tensor | None], Linear]]:
    """Of what there is, the fastest counts: oneDNN's, and what this machine uses for ``paged``."""
    import torch

    from backends.paged.fast.kernels import ONEDNN, float32_kernels

    here = float32_kernels(torch.device("cpu"), Settings().cache_dir / "kernels")
    return [ONEDNN.linear, here.linear]


def _repeat(product: Linear, x: torch.Tensor) -> None:
    for _ in range(REPEATS):
        product(x)


def best(work: Callable[[], object], repeats: int = 5, wait: Callable[[], None] = lambda: None) -> float:
    """Seconds until ``wait`` returns: the least of some, since whatever else runs can only add."""
    times = []
    work()
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)
