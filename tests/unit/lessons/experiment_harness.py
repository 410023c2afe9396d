"""Runs an experiment on real engines of a tiny model, and gives what these engines recorded, as JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.api.in_process import in_process_post
from backends.base import Backend
from backends.generate.engine import GenerateEngine
from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome
from backends.naive.engine import NaiveEngine
from backends.paged.engine import PagedEngine
from backends.records import State
from backends.settings import Settings
from tests.tiny_models import make_tiny_model

PATIENCE = 170
ENGINES: dict[str, Callable[[Settings], Backend]] = {
    "generate": GenerateEngine,
    "naive": NaiveEngine,
    "paged": PagedEngine,
}
Record = dict[str, Any]


class Measurement:
    """An outcome, and the records of each engine that it comes from, in the order they were made."""

    def __init__(self, outcome: Outcome, engines: list[Backend]) -> None:
        self.outcome = outcome
        self.values = {measured.name: measured.value for measured in outcome.measured}
        self.records: list[list[Record]] = [
            [json.loads(entry.line) for entry in engine.recorder.since(0)] for engine in engines
        ]

    def of(self, kind: str, engine: int = 0) -> list[Record]:
        """Records of one type, of one engine."""
        return [record for record in self.records[engine] if record["type"] == kind]

    def steps(self, engine: int = 0) -> list[Record]:
        return self.of("step", engine)

    def scheduled(self, engine: int = 0) -> int:
        """Tokens that went through the model."""
        return sum(row["num_scheduled_tokens"] for step in self.steps(engine) for row in step["rows"])


class Laboratory:
    """One tiny model for all experiments of a module."""

    def __init__(self, folder: Path) -> None:
        self._model = make_tiny_model(folder / "model", "llama", tokenizer="words", max_positions=1024)
        self._cache = folder / "cache"
        self._post = in_process_post(Settings())
        self._measured: dict[str, Measurement] = {}

    async def measure(self, name: str) -> Measurement:
        """Run once, however many tests look at it."""
        if name not in self._measured:
            self._measured[name] = await self._measure(name)
        return self._measured[name]

    async def _measure(self, name: str) -> Measurement:
        engines: list[Backend] = []

        def make(name: str, /, **changes: Any) -> Backend:
            settings = Settings(model=str(self._model), cache_dir=self._cache)
            engines.append(ENGINES[name](settings.model_copy(update=changes)))
            return engines[-1]

        async with asyncio.timeout(PATIENCE):
            outcome = await EXPERIMENTS[name](Ground(make, lambda progress: None, self._post))
        assert [engine.state.state for engine in engines] == [State.IDLE] * len(engines)
        return Measurement(outcome, engines)
