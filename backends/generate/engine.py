"""The ``generate`` engine: ``model.generate()``, as most people meet it first.

Its queue and its batches live in the worker, beside the model: what the server's side does is
pass requests on, and tokens back.
"""

from __future__ import annotations

from typing import ClassVar

from backends.base import BackendInfo, ControlAction, GenerationRequest
from backends.engine_child import WorkerReady
from backends.errors import InvalidRequest
from backends.generate.messages import SEQUENTIAL, STATIC, WorkerConfig
from backends.hosted import TORCH_MODULES
from backends.models import PreparedModel
from backends.queued_engine import QueuedEngine
from backends.records import EngineConfig


class GenerateEngine(QueuedEngine):
    """Implements ``base.Backend``."""

    info = BackendInfo(
        name="generate",
        title="generate",
        modes=(SEQUENTIAL, STATIC),
        supported=frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos", "prompt_ids"}),
        controls=frozenset(ControlAction),
    )
    notes: ClassVar = {
        "kv": "Every row reserves slots for the longest text the engine takes, whatever it needs. "
        "Filled: slots that hold K and V of its own tokens, those computed for nothing included.",
        "latency": "From the engine's stamps: TTFT = first token − arrival, ITL = gap between two tokens. "
        "A static batch gives all its tokens when its longest row is done.",
    }
    main = "backends.generate.model_worker:main"
    preload = TORCH_MODULES

    def check_request(self, request: GenerationRequest) -> None:
        if request.mode == STATIC and request.sampling.seed is not None:
            raise InvalidRequest(
                "A static batch cannot honour seed: its rows draw from one generator.", field="seed"
            )

    def worker_config(self, model: PreparedModel) -> WorkerConfig:
        return WorkerConfig(
            model=model,
            device=self.settings.device,
            max_model_len=self.max_model_len,
            batch_size=self.settings.batch_size,
            first_step_id=self.next_step_id,
        )

    def engine_config(self, ready: WorkerReady) -> EngineConfig:
        return EngineConfig(max_model_len=self.max_model_len, batch_size=self.settings.batch_size)
