"""The calculator against vLLM itself: its checks, its words, and the blocks that it reports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import sizing
from backends.settings import Settings
from backends.sizing import GIB, Plan, Reason, verdict
from backends.sizing_table import Rule, reported
from backends.vllm_async.engine import VllmEngine
from tests.engine_harness import started

KV_MEMORY = 100 * 2**20

OPT = {
    "num_layers": 12,
    "num_attention_heads": 12,
    "num_kv_heads": 12,
    "head_dim": 64,
    "num_parameters": 125_239_296,
    "total_memory": 6 * GIB,
    "free_memory": int(5.2 * GIB),
    "max_model_len": 2048,
}


def what_vllm_says(plan: Plan) -> str | None:
    """Its two checks, one after the other, on a card like this."""
    from vllm.v1.core.kv_cache_utils import _check_enough_kv_cache_memory
    from vllm.v1.worker.utils import request_memory

    card: Any = SimpleNamespace(
        total_memory=plan.total_memory, free_memory=plan.free_memory, device_="cuda:0"
    )
    cache: Any = SimpleNamespace(gpu_memory_utilization=plan.gpu_memory_utilization)
    block = sizing.block_bytes(plan)
    try:
        reserved = request_memory(card, cache)
        assert reserved == sizing.reserved_bytes(plan)
        _check_enough_kv_cache_memory(
            reserved - sizing.weight_bytes(plan) - plan.other_memory,
            lambda: sizing.blocks_per_request(plan) * block,
            plan.max_model_len,
            lambda memory: memory // block * plan.block_size,
        )
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu_memory_utilization": 0.9}, Reason.NOT_FREE),
        ({"gpu_memory_utilization": 0.5}, Reason.STARTS),
        ({"gpu_memory_utilization": 0.1}, Reason.NO_KV_CACHE),
        ({"gpu_memory_utilization": 0.5, "max_model_len": 131_072}, Reason.REQUEST_TOO_LONG),
        ({"gpu_memory_utilization": 0.16392, "max_model_len": 131_072}, Reason.REQUEST_TOO_LONG),
        ({"total_memory": 24 * GIB, "free_memory": 23 * GIB, "gpu_memory_utilization": 0.9}, Reason.STARTS),
    ],
)
def test_a_verdict_is_vllms_own_word_for_word(changes: dict[str, Any], reason: Reason) -> None:
    plan = Plan(**OPT | changes)
    assert verdict(plan).reason is reason
    assert verdict(plan).message == what_vllm_says(plan)


def test_every_function_that_decides_is_where_the_verdict_says() -> None:
    import vllm

    root = Path(vllm.__file__).parent.parent
    plans = [
        Plan(**OPT | {"tensor_parallel_size": 5}),
        Plan(**OPT | {"gpu_memory_utilization": 0.9}),
        Plan(**OPT | {"gpu_memory_utilization": 0.1}),
    ]
    for where in (verdict(plan).where for plan in plans):
        assert where is not None
        path, _, rest = where.partition("::")
        symbol, _, version = rest.partition(" ")
        source = (root / path).read_text(encoding="utf-8")
        for name in symbol.split("."):
            assert f"def {name}(" in source or f"class {name}" in source, where
        assert vllm.__version__.startswith(version.strip("()"))


async def test_the_blocks_that_vllm_makes_of_its_memory_are_those_calculated() -> None:
    """The margin is nothing: it divides what it has for K and V into whole blocks, as calculated."""
    settings = Settings(block_size=32, vllm_args=f"--kv-cache-memory-bytes {KV_MEMORY}")
    async with started(VllmEngine(settings)) as engine:
        header = engine.recorder.header
    assert header is not None
    assert header.shape is not None
    plan = Plan(
        num_layers=header.shape.num_layers,
        num_attention_heads=header.shape.num_attention_heads,
        num_kv_heads=header.shape.num_kv_heads,
        head_dim=header.shape.head_dim,
        num_parameters=header.shape.num_parameters or 1,
        dtype=header.dtype,
        total_memory=4 * GIB,
        free_memory=4 * GIB,
        other_memory=0,
        gpu_memory_utilization=1.0,
        max_model_len=header.engine.max_model_len or 1,
        block_size=32,
    )
    exact = plan.model_copy(update={"other_memory": 4 * GIB - sizing.weight_bytes(plan) - KV_MEMORY})
    assert sizing.kv_cache_bytes(exact) == KV_MEMORY
    told = reported(exact, header, blocks_given=False)
    assert told is not None
    assert (told.rule, told.agreement) == (Rule.MEMORY, 1.0)
    assert told.expected_blocks == told.num_blocks == KV_MEMORY // (32 * 2 * 30 * 3 * 64 * 4)
