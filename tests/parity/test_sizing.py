"""The calculator against engines that really lay out their memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import sizing
from backends.models import PreparedModel
from backends.paged.config import WorkerConfig
from backends.paged.engine import PagedEngine
from backends.paged.worker import build_core
from backends.settings import Settings
from backends.sizing import GIB, Plan
from backends.sizing_table import Rule, reported
from tests.engine_harness import started
from tests.tiny_models import ARCHITECTURES, Architecture, make_tiny_model, prepare_tiny_model

MAX_MODEL_LEN, MAX_NUM_SEQS = 100, 5
"""Neither is a multiple of a block."""


def plan_of(model: PreparedModel, **changes: Any) -> Plan:
    """What the paged engine runs with on a CPU: float32, and nothing but the model in memory."""
    shape = model.shape
    told = {
        "num_layers": shape.num_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_parameters": shape.num_parameters,
        "dtype": "float32",
        "total_memory": 4 * GIB,
        "free_memory": 4 * GIB,
        "other_memory": 0,
        "gpu_memory_utilization": 0.5,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": MAX_NUM_SEQS,
    }
    return Plan(**told | changes)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_and_cache_take_the_bytes_that_the_calculator_says(
    tmp_path: Path, architecture: Architecture
) -> None:
    model = prepare_tiny_model(tmp_path, architecture)
    plan = plan_of(model)
    core = build_core(
        WorkerConfig(
            model=model,
            cache_dir=str(tmp_path),
            device="cpu",
            dtype="float32",
            kernels="plain",  # the weights as the model has them
            max_model_len=MAX_MODEL_LEN,
            block_size=plan.block_size,
            num_blocks=None,
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=64,
            memory_share=0.5,
        )
    )
    cache = core.runner.cache
    assert cache.slots[:, : cache.spare_slot].nbytes == core.pool.num_blocks * sizing.block_bytes(plan)
    weights = {tensor.data_ptr(): tensor.nbytes for tensor in core.runner.model.model.parameters()}
    assert sum(weights.values()) == pytest.approx(sizing.weight_bytes(plan), rel=0.01)


@pytest.mark.parametrize("block_size", [4, 16])
async def test_a_running_paged_engine_reports_the_blocks_that_were_calculated(
    tmp_path: Path, block_size: int
) -> None:
    folder = make_tiny_model(tmp_path / "llama", "llama", tokenizer="words")
    settings = Settings(
        model=str(folder),
        cache_dir=tmp_path / "cache",
        max_tokens=90,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        block_size=block_size,
    )
    async with started(PagedEngine(settings)) as engine:
        header = engine.recorder.header
    assert header is not None
    model = prepare_tiny_model(tmp_path / "again", "llama", tokenizer="words")
    assert header.shape == model.shape
    told = reported(plan_of(model, block_size=block_size), header, blocks_given=False)
    assert told is not None
    assert (told.rule, told.agreement) == (Rule.NEEDED, 1.0)
    assert told.expected_blocks == told.num_blocks == MAX_NUM_SEQS * -(-MAX_MODEL_LEN // block_size)
