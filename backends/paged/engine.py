"""The paged engine as the server sees it; the engine itself runs in ``worker.py``."""

from __future__ import annotations

from typing import ClassVar

from backends import admission
from backends.base import BackendInfo, ControlAction, GenerationRequest
from backends.engine_child import WorkerReady
from backends.hosted import TORCH_MODULES
from backends.models import PreparedModel
from backends.paged.config import WorkerConfig
from backends.queued_engine import QueuedEngine
from backends.records import EngineConfig


class PagedEngine(QueuedEngine):
    """Implements ``base.Backend``."""

    info = BackendInfo(
        name="paged",
        title="paged",
        supported=frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs", "prompt_ids"}),
        controls=frozenset(ControlAction),
    )
    notes: ClassVar = {
        "kv": "Every block of the pool, from the block tables of each step.",
        "latency": "From the engine's stamps: TTFT = first token − arrival, ITL = gap between two tokens.",
    }
    main = "backends.paged.worker:main"
    preload = TORCH_MODULES
    num_blocks: int | None = None
    """Known once the worker has looked at its memory."""

    def footprint(self, model: PreparedModel, total: int | None) -> int:
        """With every block of the pool, counted as float32."""
        settings = self.settings
        slots = settings.max_num_seqs * super().max_model_len
        if settings.num_blocks is not None:
            slots = settings.num_blocks * settings.block_size
        pool = slots * model.shape.kv_values_per_token * 4
        if total is not None:
            pool = min(pool, int(total * settings.gpu_memory_utilization))
        return super().footprint(model, total) + pool

    def check_request(self, request: GenerationRequest) -> None:
        admission.check_range("n", request.sampling.n, 1, self.settings.max_num_seqs)

    @property
    def max_model_len(self) -> int:
        """The whole pool is the limit where it holds less than the model's longest text."""
        limit = super().max_model_len
        return limit if self.num_blocks is None else min(limit, self.num_blocks * self.settings.block_size)

    def worker_config(self, model: PreparedModel) -> WorkerConfig:
        return WorkerConfig(
            model=model,
            cache_dir=str(self.settings.cache_dir),
            device=self.settings.device,
            max_model_len=super().max_model_len,
            block_size=self.settings.block_size,
            num_blocks=self.settings.num_blocks,
            max_num_seqs=self.settings.max_num_seqs,
            max_num_batched_tokens=self.settings.max_num_batched_tokens,
            dtype=self.settings.dtype,
            kernels=self.settings.paged_kernels,
            memory_share=self.settings.gpu_memory_utilization,
            first_step_id=self.next_step_id,
        )

    def engine_config(self, ready: WorkerReady) -> EngineConfig:
        self.num_blocks = ready.num_blocks
        return EngineConfig(
            max_model_len=self.max_model_len,
            block_size=self.settings.block_size,
            num_blocks=ready.num_blocks,
            max_num_seqs=self.settings.max_num_seqs,
            max_num_batched_tokens=self.settings.max_num_batched_tokens,
            kernels=ready.kernels,
        )
