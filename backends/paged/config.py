"""What the paged engine's process is started with."""

from __future__ import annotations

from typing import Literal

import msgspec

from backends.models import PreparedModel


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is started with."""

    model: PreparedModel
    cache_dir: str
    device: str
    max_model_len: int
    block_size: int
    num_blocks: int | None
    """``None``: as many as the longest texts of ``max_num_seqs`` requests need, if memory allows."""
    max_num_seqs: int
    max_num_batched_tokens: int
    dtype: Literal["float32", "int8"]
    kernels: Literal["fast", "plain"]
    memory_share: float
    """Of the free memory that the KV cache may take at most."""
    first_step_id: int = 0
