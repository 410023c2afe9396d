"""One model twice, and an engine core whose tokens are noted: for the tests of the paged batcher.

``graphed`` is what ``cuda`` is, on a CPU: recorded steps are on a ``tests/tape.py::Tape``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM

from backends.base import SamplingParams
from backends.models import PreparedModel
from backends.paged.block_pool import BlockPool
from backends.paged.core import EngineCore, Limits
from backends.paged.fast.cuda_graphs import CudaGraphs
from backends.paged.fast.graphed import GraphedModel
from backends.paged.fast.kernels import DENSE, float32_kernels
from backends.paged.fast.model import FastModel
from backends.paged.kv_cache import KVCache
from backends.paged.model_runner import Model, ModelRunner
from backends.paged.plain_model import PlainModel, load_model
from backends.paged.scheduler import Scheduler
from backends.records import StepRecord
from backends.settings import Settings
from backends.text import TextCodec
from backends.worker_messages import AddRequest
from tests.tape import on_tape

NUM_TOKENS = 20
Kernels = Literal["plain", "fast", "graphed", "cuda"]


@dataclass(frozen=True)
class Twins:
    """One model twice: with attention over block tables, and as transformers runs it."""

    prepared: PreparedModel
    kernels: Kernels
    paged: Model
    plain: Any
    codec: TextCodec

    @classmethod
    def load(cls, prepared: PreparedModel, kernels: Kernels) -> Twins:
        plain = AutoModelForCausalLM.from_pretrained(prepared.path, dtype=torch.float32)
        loaded = load_model(prepared.path, "cuda" if kernels == "cuda" else "cpu")
        paged: Model = PlainModel(loaded)
        if kernels != "plain":
            here = DENSE
            if kernels != "graphed":
                here = float32_kernels(loaded.device, Settings().cache_dir / "kernels")
            paged = FastModel(loaded, here, prepared.max_position_embeddings)
        return cls(prepared, kernels, paged, plain, TextCodec.load(prepared))

    def core(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 16,
        max_num_seqs: int = 16,
        budget: int = 512,
        prefix_caching: bool = True,
    ) -> EngineCore:
        pool = BlockPool(num_blocks, block_size, prefix_caching=prefix_caching)
        device = "cuda" if self.kernels == "cuda" else "cpu"
        kv = KVCache(self.prepared.shape, num_blocks=num_blocks, block_size=block_size, device=device)
        limit = min(self.prepared.max_position_embeddings, num_blocks * block_size)
        model = self.paged
        if self.kernels in ("graphed", "cuda"):
            assert isinstance(model, FastModel)
            capture = on_tape if self.kernels == "graphed" else CudaGraphs()
            model = GraphedModel(model, kv, max_num_seqs, limit, capture)
        return EngineCore(
            ModelRunner(model, kv),
            Scheduler(pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget),
            self.codec,
            Limits(limit, frozenset()),
        )

    def generate(self, prompt: str, num_tokens: int = NUM_TOKENS) -> list[int]:
        ids = torch.tensor([self.codec.encode(prompt)])
        output = self.plain.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
        )
        return output[0, ids.shape[1] :].tolist()


class Run:
    """An engine core and the tokens of everybody in it."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.tokens: dict[str, list[int]] = {}
        self.steps: list[StepRecord] = []

    def add(self, name: str, prompt: str, num_tokens: int = NUM_TOKENS, **sampling: Any) -> None:
        params = SamplingParams(**{"max_tokens": num_tokens, "temperature": 0, **sampling})
        self.tokens[name] = []
        self.core.add(AddRequest(request_id=name, prompt_ids=self.core.codec.encode(prompt), sampling=params))

    def step(self) -> StepRecord:
        update = self.core.step()
        for token in update.tokens:
            self.tokens.setdefault(token.request_id, []).append(token.token_id)
        (record,) = update.records
        assert isinstance(record, StepRecord)
        self.steps.append(record)
        return record

    def finish(self) -> dict[str, list[int]]:
        while self.core.has_work():
            self.step()
        self.core.pool.check_integrity([])
        return self.tokens
