"""What a model needs of a card's memory, and whether vLLM starts on it. Pure arithmetic.

::

    card       ████ others ████│░░░░░░░░░░░░░░░░░ free ░░░░░░░░░░░░░░░░░
    reserved   ████ weights ██│▒ rest ▒│████████ KV cache ████████│  not reserved
               ◄──────── gpu_memory_utilization × card ─────────►

``gpu_memory_utilization`` is a share of the whole card that is reserved at the start, not a limit of what
may be used: it must be free then. What weights and the rest leave of it is the KV cache.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

GIB = 2**30
LARGEST_MEMORY = 2**50
VLLM_VERSION = "0.32"
"""Whose checks and words these are."""

Size = Annotated[int, Field(ge=1, le=1_000_000)]
Memory = Annotated[int, Field(ge=0, le=LARGEST_MEMORY)]


class Dtype(StrEnum):
    """What the weights are held in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP8 = "fp8"
    INT8 = "int8"


class CacheDtype(StrEnum):
    """What K and V are held in."""

    AUTO = "auto"
    """As vLLM does it: the model's own dtype, 16 bits for weights of 8."""
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP8 = "fp8"


BYTES = {
    Dtype.FLOAT32: 4,
    Dtype.FLOAT16: 2,
    Dtype.BFLOAT16: 2,
    Dtype.FP8: 1,
    Dtype.INT8: 1,
}


class Plan(BaseModel):
    """A model, a card, and how vLLM is to be started. Memory in bytes."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    num_layers: Size
    num_attention_heads: Size
    num_kv_heads: Size
    head_dim: Size
    num_parameters: Annotated[int, Field(ge=1, le=10**14)]
    dtype: Annotated[Dtype, Field(strict=False)] = Dtype.FLOAT16
    kv_cache_dtype: Annotated[CacheDtype, Field(strict=False)] = CacheDtype.AUTO
    total_memory: Annotated[int, Field(ge=1, le=LARGEST_MEMORY)]
    free_memory: Memory
    """When the engine starts: others may hold some of it."""
    other_memory: Memory = 3 * GIB // 4
    """An assumption: CUDA's own context, the activations of the largest step, CUDA graphs. vLLM measures it
    in a trial run."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    max_model_len: Annotated[int, Field(ge=1, le=100_000_000)]
    max_num_seqs: Size = 256
    block_size: Annotated[int, Field(ge=1, le=65_536)] = 16
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = 1

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        if self.num_kv_heads > self.num_attention_heads:
            raise ValueError(
                f"num_kv_heads ({self.num_kv_heads}) cannot exceed "
                f"num_attention_heads ({self.num_attention_heads})"
            )
        if self.free_memory > self.total_memory:
            raise ValueError(
                f"free_memory ({self.free_memory}) cannot exceed total_memory ({self.total_memory})"
            )
        return self


def bytes_of_weight(dtype: Dtype) -> int:
    return BYTES[dtype]


def bytes_of_cached(plan: Plan) -> int:
    """Bytes of one number of K or V."""
    if plan.kv_cache_dtype is CacheDtype.AUTO:
        return max(2, BYTES[plan.dtype])
    return BYTES[Dtype(plan.kv_cache_dtype)]


def kv_heads_per_card(plan: Plan) -> int:
    """Heads are dealt out to the cards; where there are fewer than cards, each card holds one."""
    return max(1, plan.num_kv_heads // plan.tensor_parallel_size)


def kv_bytes_per_token(plan: Plan) -> int:
    """On each card. K and V have a head for each *KV* head, of which several queries may share one."""
    return 2 * plan.num_layers * kv_heads_per_card(plan) * plan.head_dim * bytes_of_cached(plan)


def block_bytes(plan: Plan) -> int:
    return kv_bytes_per_token(plan) * plan.block_size


def weight_bytes(plan: Plan) -> int:
    """On each card. Norms, which every card holds, are too small to count apart."""
    return math.ceil(plan.num_parameters * BYTES[plan.dtype] / plan.tensor_parallel_size)


def reserved_bytes(plan: Plan) -> int:
    return math.ceil(plan.total_memory * plan.gpu_memory_utilization)


def kv_cache_bytes(plan: Plan) -> int:
    """What is left for K and V; negative where weights and the rest exceed what is reserved."""
    return reserved_bytes(plan) - weight_bytes(plan) - plan.other_memory


def tokens_in(memory: int, plan: Plan) -> int:
    """Whole tokens whose K and V fit."""
    return max(0, memory) // kv_bytes_per_token(plan)


def num_blocks(plan: Plan) -> int:
    """Whole blocks that fit."""
    return max(0, kv_cache_bytes(plan)) // block_bytes(plan)


def blocks_per_request(plan: Plan) -> int:
    """Of one that grows to ``max_model_len``; the last block is taken whole."""
    return -(-plan.max_model_len // plan.block_size)


def full_length_requests(plan: Plan) -> int:
    """How many can grow to ``max_model_len`` at once. With ``max_num_seqs`` up to this, nothing is ever
    preempted."""
    return num_blocks(plan) // blocks_per_request(plan)


def lowest_utilization(plan: Plan) -> float:
    """Least share of the card that holds weights, rest and one request of ``max_model_len``."""
    one_request = blocks_per_request(plan) * block_bytes(plan)
    return (weight_bytes(plan) + plan.other_memory + one_request) / plan.total_memory


def highest_utilization(plan: Plan) -> float:
    """Greatest share of the card that is free at the start."""
    return plan.free_memory / plan.total_memory


class Reason(StrEnum):
    """What decides whether it starts, in the order in which vLLM looks."""

    HEADS_NOT_DIVISIBLE = "heads_not_divisible"
    NOT_FREE = "not_free"
    """Less memory is free than shall be reserved."""
    NO_KV_CACHE = "no_kv_cache"
    """Weights and the rest take all of it."""
    REQUEST_TOO_LONG = "request_too_long"
    """One request of ``max_model_len`` does not fit."""
    STARTS = "starts"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Does it start?"""

    starts: bool
    reason: Reason
    message: str | None = None
    """The error as vLLM words it."""
    where: str | None = None
    """The function of vLLM that decides."""


def verdict(plan: Plan) -> Verdict:
    """vLLM's checks, one after the other."""
    kv, needed = kv_cache_bytes(plan), blocks_per_request(plan) * block_bytes(plan)
    if plan.num_attention_heads % plan.tensor_parallel_size:
        return _refused(
            Reason.HEADS_NOT_DIVISIBLE,
            "vllm/config/model.py::ModelConfig.verify_with_parallel_config",
            f"Total number of attention heads ({plan.num_attention_heads}) must be divisible by tensor "
            f"parallel size ({plan.tensor_parallel_size}).",
        )
    if plan.free_memory < reserved_bytes(plan):
        return _refused(
            Reason.NOT_FREE,
            "vllm/v1/worker/utils.py::request_memory",
            f"Free memory on device cuda:0 ({_gib(plan.free_memory)}/{_gib(plan.total_memory)} GiB) on "
            f"startup is less than desired GPU memory utilization ({plan.gpu_memory_utilization}, "
            f"{_gib(reserved_bytes(plan))} GiB). Decrease GPU memory utilization or reduce GPU memory used "
            "by other processes.",
        )
    where = "vllm/v1/core/kv_cache_utils.py::_check_enough_kv_cache_memory"
    if kv <= 0:
        return _refused(
            Reason.NO_KV_CACHE,
            where,
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine (this flag also controls CPU memory reservation on the CPU backend, "
            f"despite its name). {SEE}",
        )
    if needed > kv:
        return _refused(Reason.REQUEST_TOO_LONG, where, _too_long(plan, needed, kv))
    return Verdict(starts=True, reason=Reason.STARTS)


SEE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


def _too_long(plan: Plan, needed: int, kv: int) -> str:
    longest = num_blocks(plan) * plan.block_size
    estimate = (
        f"Based on the available memory, the estimated maximum model length is {longest}. " if longest else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({plan.max_model_len}), "
        f"({_gib(needed)} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({_gib(kv)} GiB). {estimate}Try increasing `gpu_memory_utilization` (which also controls CPU "
        f"memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. {SEE}"
    )


def _refused(reason: Reason, where: str, message: str) -> Verdict:
    return Verdict(starts=False, reason=reason, message=message, where=f"{where} ({VLLM_VERSION})")


def _gib(num_bytes: int) -> str:
    return f"{round(num_bytes / GIB, 2)}"
