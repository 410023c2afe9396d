"""What is said between the server and the vLLM worker, and between the worker and the tap."""

from __future__ import annotations

from typing import Any

import msgspec

from backends.base import SamplingParams
from backends.engine_child import WorkerReady
from backends.models import PreparedModel
from backends.records import EngineConfig, KVChanged, StepRecord
from backends.worker_messages import AbortRequest, SetGate, StepOnce, WorkerUpdate

ASYNC = "async"
BLOCKING = "blocking"


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is started with."""

    model: PreparedModel
    device: str
    max_model_len: int
    block_size: int
    num_blocks: int | None
    """``None``: as many as ``gpu_memory_utilization`` leaves room for."""
    max_num_seqs: int
    max_num_batched_tokens: int | None
    """``None``: vLLM's own choice."""
    gpu_memory_utilization: float
    enforce_eager: bool
    arguments: str
    """More of vLLM's own engine arguments, spelled as for ``vllm serve``; they win."""
    use_tap: bool
    first_step_id: int
    scratch: str
    """A folder for this worker's sockets, and for the last words of its EngineCore."""


# Server → worker


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One text to write."""

    request_id: str
    prompt_ids: list[int]
    sampling: SamplingParams
    cache_salt: str | None = None


class AddCall(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """One call of a client, with all its prompts."""

    mode: str
    prompts: list[Prompt]


ToVllm = AddCall | AbortRequest | SetGate | StepOnce


# Worker → server


class VllmReady(WorkerReady, frozen=True, kw_only=True):
    engine: EngineConfig
    """As vLLM has settled it."""
    why_no_tap: str | None = None
    """Why the scheduler cannot be seen; ``None`` where it can."""
    why_no_kv: str | None = None
    """Why the blocks cannot be told, where the steps can."""


class VllmUpdate(WorkerUpdate, frozen=True, kw_only=True):
    tap_lost: str | None = None
    """The tap has just failed: from now on only sums are told."""


# Tap → worker


class TapHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First words of the tap, when the scheduler has been built."""

    engine: EngineConfig
    why_no_kv: str | None


class TapReport(msgspec.Struct, frozen=True, kw_only=True, tag="report"):
    """What the scheduler has just done."""

    records: list[StepRecord | KVChanged] = []
    tokens: dict[str, int] = {}
    """Request → how many tokens the step chose for it."""
    seen: list[str] = []
    """Requests that have reached the scheduler."""
    gone: list[str] = []
    """Requests that have left it."""
    num_waiting: int = 0


class TapLost(msgspec.Struct, frozen=True, tag="lost"):
    """The tap has failed and is off."""

    sentence: str


FromTap = TapHello | TapReport | TapLost


# Worker → tap

ToTap = SetGate | StepOnce
NUM_TOLD = "servescope_num_told"
"""Key in vLLM's ``extra_args``: how many messages to the tap were sent before this request. They take
another way than requests do, and a request that overtook a pause would not be held by it."""


class TapConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the tap is told at the start, through vLLM's ``additional_config``."""

    address: str
    first_step_id: int
    exact_shape: bool
    """Nothing pads the batch (eager mode), so its shape is the number of its tokens."""

    def to_dict(self) -> dict[str, Any]:
        return {"servescope": msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, additional_config: Any) -> TapConfig:
        return msgspec.convert(additional_config["servescope"], cls)
