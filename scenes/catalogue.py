"""Every scene, and the recordings that come of it: of each engine that it starts, unless it is not kept.

Most are the experiments of lessons, so that who cannot run one sees what it would have shown. Prompts
are drawn with fixed seeds: recorded again, the same is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.experiments.batching import VLLM_SHARE
from backends.lessons.ground import Ground
from backends.lessons.prompts import now, prompt_of
from backends.workloads.workload import Arrivals, Workload, plan

Play = Callable[[Ground], Awaitable[object]]

NUM_BLOCKS = 12
BLOCK_SIZE = 32
"""The smallest that vLLM takes on a CPU."""
SHARED_TOKENS = 40
PROMPT_TOKENS = 58
OUTPUT_TOKENS = 24
NUM_REQUESTS = 6

ROOM = Workload(
    students=16,
    arrivals=Arrivals.POISSON,
    window=4.0,
    prompt_words=(8, 24),
    shared_words=24,
    output_tokens=(32, 64, 24, 48),
    seed=16,
)
"""Sixteen students, who come as people come."""
ROOM_BLOCKS = 64
ROOM_PLACES = 8


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do on a ground."""

    needs: tuple[str, ...]
    """Engines that it runs on."""
    play: Play
    recordings: tuple[str | None, ...]
    """The name for the trace of each engine that it starts, in that order; ``None``: it is not kept."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.recordings if name is not None)


def _experiment(name: str, *recordings: str | None, needs: tuple[str, ...]) -> Scene:
    return Scene(needs=needs, play=EXPERIMENTS[name], recordings=recordings)


async def _vllm_preemption(ground: Ground) -> None:
    """Six requests that share a block come to need 13, where there are 11 and the null block."""
    async with ground.engine(
        "vllm", num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, gpu_memory_utilization=VLLM_SHARE
    ) as engine:
        shared = await prompt_of(engine, SHARED_TOKENS, seed=1)
        planned = [
            now(await prompt_of(engine, PROMPT_TOKENS, start=shared, seed=2 + number), OUTPUT_TOKENS)
            for number in range(NUM_REQUESTS)
        ]
        await ground.run(engine, [now(shared, 1)], together=False)  # the block that all have in common
        await ground.run(engine, planned, waiting_queue="waiting")


def _room(backend: str) -> Play:
    async def play(ground: Ground) -> None:
        async with ground.engine(
            backend,
            num_blocks=ROOM_BLOCKS,
            block_size=BLOCK_SIZE,
            max_num_seqs=ROOM_PLACES,
            gpu_memory_utilization=VLLM_SHARE,
        ) as engine:
            await ground.run(engine, plan(ROOM), together=False)

    return play


SCENES = (
    _experiment("one_at_a_time", "generate-one-at-a-time", needs=("generate",)),
    _experiment("streaming", "naive-streaming", needs=("naive",)),
    _experiment("one_queue_per_request", "naive-own-queues", None, needs=("naive",)),
    _experiment("shape_of_a_batch", "naive-batch", needs=("naive",)),
    _experiment("no_cache", "naive-no-cache", "paged-cache", needs=("naive", "paged")),
    _experiment("padding", "naive-padding", needs=("naive",)),
    _experiment("static_batch", "generate-static", "paged-continuous", needs=("generate", "paged")),
    _experiment("reserving", "generate-reserved", "paged-blocks", needs=("generate", "paged")),
    _experiment("prefix_caching", "paged-prefix", needs=("paged",)),
    _experiment("running_out", "paged-preemption", needs=("paged",)),
    _experiment("long_prefill", "paged-long-prefill", "paged-chunked", needs=("paged",)),
    _experiment("replicas", "paged-replica", None, needs=("paged",)),
    _experiment("blocking_mode", "vllm-blocking", needs=("vllm",)),
    Scene(needs=("vllm",), play=_vllm_preemption, recordings=("vllm-preemption",)),
    Scene(needs=("paged",), play=_room("paged"), recordings=("paged-room",)),
    Scene(needs=("vllm",), play=_room("vllm"), recordings=("vllm-room",)),
)

NAMES = tuple(name for scene in SCENES for name in scene.names)
