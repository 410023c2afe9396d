"""What the paged engine's records cost: the same work with them and without, in turns.

    python -m benchmarks.telemetry --rounds 10

Without: the worker writes no step down and sends none, and the server's side keeps no record. Both
engines are up at once and take turns. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from backends.paged import worker
from backends.paged.core import EngineCore
from backends.paged.engine import PagedEngine
from backends.settings import Settings
from backends.worker_messages import WorkerUpdate
from benchmarks.asking import num_tokens_of
from benchmarks.workload import Workload


class SilentCore(EngineCore):
    """``EngineCore`` without a record of what it does."""

    def step(self) -> WorkerUpdate:
        _, result = self._advance()
        self.pool.take_changes(())  # else they would add up
        self.next_step_id += 1
        return WorkerUpdate(tokens=result.tokens, ended=result.ended)


def silent_main(*arguments: Any) -> None:
    """Where the worker's process of a ``SilentEngine`` begins."""
    worker.EngineCore = SilentCore  # type: ignore[misc]
    worker.main(*arguments)


class SilentEngine(PagedEngine):
    main = "benchmarks.telemetry:silent_main"

    async def start(self) -> None:
        await super().start()
        self.recorder.append = self.recorder.extend = lambda records: None  # type: ignore[method-assign]


async def throughput(engine: PagedEngine, work: Workload, seed: int) -> float:
    """Tokens a second with all requests at once."""
    prompts = work.prompts(seed)
    start = time.perf_counter()
    counts = await asyncio.gather(
        *(num_tokens_of(engine, work.output_tokens, prompt="", prompt_ids=tuple(ids)) for ids in prompts)
    )
    seconds = time.perf_counter() - start
    assert counts == [work.output_tokens] * work.concurrent, counts
    return sum(counts) / seconds


async def compare(rounds: int, work: Workload, dtype: str) -> dict[str, Any]:
    settings = Settings(max_model_len=512, dtype=dtype)  # type: ignore[arg-type]
    engines = {"on": PagedEngine(settings), "off": SilentEngine(settings)}
    seen: dict[str, list[float]] = {"on": [], "off": []}
    try:
        for engine in engines.values():
            await engine.start()
            await throughput(engine, work, seed=-1)  # warm
        for number in range(rounds):
            for name in ("on", "off") if number % 2 else ("off", "on"):
                seen[name].append(await throughput(engines[name], work, seed=number))
                print(f"round {number + 1}: records {name:3} {seen[name][-1]:6.1f} tokens/s", flush=True)
        header, version = engines["off"].recorder.header, engines["off"].recorder.version
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines.values()))
    assert header is not None
    ratios = [on / off for on, off in zip(seen["on"], seen["off"], strict=True)]
    return {
        "benchmark": "telemetry",
        "tokens_per_second": seen,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 3),
        "records_without": version,
        "concurrent": work.concurrent,
        "dtype": dtype,
        "hardware": header.hardware,
        "versions": header.versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--concurrent", type=int, default=16)
    parser.add_argument("--dtype", choices=("float32", "int8"), default="float32")
    chosen = parser.parse_args()
    print(json.dumps(asyncio.run(compare(chosen.rounds, Workload(chosen.concurrent), chosen.dtype))))


if __name__ == "__main__":
    main()
