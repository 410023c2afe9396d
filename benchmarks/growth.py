"""What a step of the paged engine costs as work grows: with the batch, with the context, with the queue.

    python -m benchmarks.growth

One process, no server: the engine core itself. Medians of some steps. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from typing import Any

import torch

from backends.base import SamplingParams
from backends.models import PreparedModel
from backends.paged.block_pool import BlockPool
from backends.paged.core import EngineCore, Limits
from backends.paged.engine import PagedEngine
from backends.paged.scheduler import Scheduler, SchedulerOutput
from backends.paged.worker import build_core
from backends.settings import Settings
from backends.text import TextCodec
from backends.worker_messages import AddRequest
from benchmarks.engines import find_model

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (64, 256, 1024, 4096)
STEPS = 12


def add(core: EngineCore, number: int, prompt_tokens: int, seed: int) -> None:
    """Requests that do not end while they are measured."""
    draw = random.Random(seed)
    for index in range(number):
        ids = [draw.randint(100, 40_000) for _ in range(prompt_tokens)]
        sampling = SamplingParams(max_tokens=10_000, temperature=0, ignore_eos=True)
        core.add(AddRequest(request_id=f"{seed}-{index}", prompt_ids=ids, sampling=sampling))


def seconds_per_step(core: EngineCore, number: int, prompt_tokens: int) -> float:
    """Of decode steps, after all prompts are computed."""
    add(core, number, prompt_tokens, seed=number * 10_000 + prompt_tokens)
    while any(s.num_new_tokens > 1 for s in core.scheduler.sequences()):
        core.step()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        core.step()
        times.append(time.perf_counter() - start)
    for sequence in list(core.scheduler.sequences()):
        core.abort(sequence.request_id)
    return statistics.median(times)


class NoModel:
    """Gives the same token at once: what is left is the engine's own bookkeeping."""

    kernels = "none"

    def __init__(self, vocab_size: int, rows: int) -> None:
        self.logits = torch.zeros(rows, vocab_size)
        self.logits[:, 500] = 1

    def run(self, output: SchedulerOutput) -> torch.Tensor:
        return self.logits[: sum(row.samples for row in output.rows)]


def bookkeeping(model: PreparedModel, running: int, waiting: int, blocks: int) -> float:
    """Seconds per step: schedule, choose, update, record."""
    core = EngineCore(
        NoModel(model.shape.vocab_size, running),  # type: ignore[arg-type]
        Scheduler(BlockPool(blocks, 16), max_num_seqs=running, max_num_batched_tokens=4096),
        TextCodec.load(model),
        Limits(8192, frozenset()),
    )
    add(core, running + waiting, 29, seed=1)
    for _ in range(5):
        core.step()
    times = []
    for _ in range(100):
        start = time.perf_counter()
        core.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(dtype: str) -> dict[str, Any]:
    settings = Settings(
        max_model_len=8192,
        num_blocks=2048,
        max_num_seqs=64,
        dtype=dtype,  # type: ignore[arg-type]
    )
    engine = PagedEngine(settings)
    engine.model = model = asyncio.run(find_model())
    start = time.perf_counter()
    core = build_core(engine.worker_config(model))
    built = time.perf_counter() - start
    seconds_per_step(core, 4, 8)  # warm
    return {
        "benchmark": "growth",
        "kernels": core.runner.model.kernels,
        "build_seconds": built,
        "step_by_batch": {number: seconds_per_step(core, number, 64) for number in BATCHES},
        "step_by_context": {length: seconds_per_step(core, 1, length) for length in CONTEXTS},
        "bookkeeping": {
            f"{running} running, {waiting} waiting, {blocks} blocks": bookkeeping(
                model, running, waiting, blocks
            )
            for running, waiting, blocks in ((16, 0, 1024), (16, 1000, 10_000), (64, 1000, 10_000))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("float32", "int8"), default="float32")
    result = measure(parser.parse_args().dtype)
    for title in ("step_by_batch", "step_by_context", "bookkeeping"):
        print(title.replace("_", " "))
        for name, seconds in result[title].items():
            print(f"  {name!s:42} {seconds * 1e3:8.2f} ms")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
