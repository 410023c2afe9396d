"""What every measured engine is: it starts once, then answers lists of prompts as fast as it can."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from backends.models import PreparedModel

MAX_MODEL_LEN = 512


@dataclass(frozen=True)
class Answered:
    """One run of a workload."""

    seconds: float
    num_tokens: list[int]
    """New tokens of each request."""


class Engine(ABC):
    """One engine, in its own process."""

    sequential: ClassVar[bool] = False
    """It takes one request after the other, so its speed is that of one request."""

    @abstractmethod
    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        """Load ``model`` to ``device``, ``cpu`` or ``cuda``; whatever takes long."""

    @abstractmethod
    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        """Generate; how many new tokens each prompt got."""

    def stop(self) -> None:  # noqa: B027  # most have nothing to end
        """End what ``start`` began."""

    def timed(self, prompts: list[list[int]], output_tokens: int) -> Answered:
        start = time.perf_counter()
        counts = self.answer(prompts, output_tokens)
        return Answered(time.perf_counter() - start, counts)
