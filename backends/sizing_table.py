"""The figures of a plan, each with its formula, and what a running engine reports beside them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from backends import sizing
from backends.records import ModelShape, TraceHeader
from backends.sizing import GIB, Plan


class Unit(StrEnum):
    BYTES = "bytes"
    TOKENS = "tokens"
    BLOCKS = "blocks"
    REQUESTS = "requests"
    SHARE = "share"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    key: str
    """The page has the words for it."""
    value: float
    unit: Unit
    formula: str
    """In the names of the code."""
    filled: str
    """The same with this plan's numbers."""


def figures(plan: Plan) -> list[Figure]:
    """In the order in which each follows from those before."""
    return [*_memory(plan), *_room(plan), *_utilization(plan)]


def _memory(plan: Plan) -> Iterator[Figure]:
    cards, of_cards = plan.tensor_parallel_size, " ÷ tensor_parallel_size"
    divided = "" if cards == 1 else of_cards
    heads = sizing.kv_heads_per_card(plan)
    yield Figure(
        key="kv_bytes_per_token",
        value=sizing.kv_bytes_per_token(plan),
        unit=Unit.BYTES,
        formula=f"2 × num_layers × num_kv_heads{divided} × head_dim × bytes",
        filled=f"2 × {plan.num_layers} × {heads} × {plan.head_dim} × {sizing.bytes_of_cached(plan)}",
    )
    yield Figure(
        key="weights",
        value=sizing.weight_bytes(plan),
        unit=Unit.BYTES,
        formula=f"num_parameters × bytes{divided}",
        filled=f"{plan.num_parameters:,} × {sizing.bytes_of_weight(plan.dtype)}"
        + ("" if cards == 1 else f" ÷ {cards}"),
    )
    yield Figure(
        key="reserved",
        value=sizing.reserved_bytes(plan),
        unit=Unit.BYTES,
        formula="gpu_memory_utilization × total_memory",
        filled=f"{plan.gpu_memory_utilization} × {_gib(plan.total_memory)}",
    )
    yield Figure(
        key="kv_cache",
        value=sizing.kv_cache_bytes(plan),
        unit=Unit.BYTES,
        formula="reserved − weights − other_memory",
        filled=f"{_gib(sizing.reserved_bytes(plan))} − {_gib(sizing.weight_bytes(plan))}"
        f" − {_gib(plan.other_memory)}",
    )


def _room(plan: Plan) -> Iterator[Figure]:
    kv, per_token = max(0, sizing.kv_cache_bytes(plan)), sizing.kv_bytes_per_token(plan)
    blocks, per_request = sizing.num_blocks(plan), sizing.blocks_per_request(plan)
    yield Figure(
        key="tokens",
        value=sizing.tokens_in(kv, plan),
        unit=Unit.TOKENS,
        formula="⌊kv_cache ÷ kv_bytes_per_token⌋",
        filled=f"{kv:,} ÷ {per_token:,}",
    )
    yield Figure(
        key="num_blocks",
        value=blocks,
        unit=Unit.BLOCKS,
        formula="⌊kv_cache ÷ (kv_bytes_per_token × block_size)⌋",
        filled=f"{kv:,} ÷ ({per_token:,} × {plan.block_size})",
    )
    yield Figure(
        key="blocks_per_request",
        value=per_request,
        unit=Unit.BLOCKS,
        formula="⌈max_model_len ÷ block_size⌉",
        filled=f"{plan.max_model_len:,} ÷ {plan.block_size}",
    )
    yield Figure(
        key="full_length_requests",
        value=sizing.full_length_requests(plan),
        unit=Unit.REQUESTS,
        formula="⌊num_blocks ÷ blocks_per_request⌋",
        filled=f"{blocks:,} ÷ {per_request:,}",
    )
    yield Figure(
        key="tokens_per_request",
        value=blocks // plan.max_num_seqs * plan.block_size,
        unit=Unit.TOKENS,
        formula="⌊num_blocks ÷ max_num_seqs⌋ × block_size",
        filled=f"{blocks:,} ÷ {plan.max_num_seqs:,} × {plan.block_size}",
    )


def _utilization(plan: Plan) -> Iterator[Figure]:
    one_request = sizing.blocks_per_request(plan) * sizing.block_bytes(plan)
    yield Figure(
        key="lowest_utilization",
        value=sizing.lowest_utilization(plan),
        unit=Unit.SHARE,
        formula="(weights + other_memory + one request's blocks) ÷ total_memory",
        filled=f"({_gib(sizing.weight_bytes(plan))} + {_gib(plan.other_memory)} + {_gib(one_request)})"
        f" ÷ {_gib(plan.total_memory)}",
    )
    yield Figure(
        key="highest_utilization",
        value=sizing.highest_utilization(plan),
        unit=Unit.SHARE,
        formula="free_memory ÷ total_memory",
        filled=f"{_gib(plan.free_memory)} ÷ {_gib(plan.total_memory)}",
    )


class Rule(StrEnum):
    """How the engine came to its number of blocks."""

    MEMORY = "memory"
    """As many as fit, as vLLM does."""
    NEEDED = "needed"
    """As many as fit, but no more than ``max_num_seqs`` requests of ``max_model_len`` need, as the paged
    batcher does."""
    GIVEN = "given"
    """The operator's ``--num-blocks``: memory had no say."""
    OTHER_MODEL = "other_model"
    """The plan is of another model, dtype or block size: nothing to compare."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own figures, and how near the plan comes."""

    engine: str
    model: str
    num_blocks: int
    block_size: int
    max_model_len: int | None
    max_num_seqs: int | None
    kv_cache: int
    """Bytes of all its blocks, by the formula, from its own shape and dtype."""
    rule: Rule
    expected_blocks: int | None
    agreement: float | None
    """The smaller of the two numbers of blocks over the greater."""


def reported(plan: Plan, header: TraceHeader, *, blocks_given: bool) -> Reported | None:
    """``None`` where an engine tells no blocks, or not what its model is like."""
    engine, shape = header.engine, header.shape
    if engine.num_blocks is None or engine.block_size is None or shape is None:
        return None
    rule = _rule(plan, header, shape, blocks_given=blocks_given)
    expected = _expected(plan, rule)
    both = None if expected is None else (expected, engine.num_blocks)
    per_token = shape.kv_values_per_token * _bytes_of(header.dtype)
    return Reported(
        engine=header.backend,
        model=header.model,
        num_blocks=engine.num_blocks,
        block_size=engine.block_size,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        kv_cache=engine.num_blocks * engine.block_size * per_token,
        rule=rule,
        expected_blocks=expected,
        agreement=None if both is None or max(both) == 0 else min(both) / max(both),
    )


def _rule(plan: Plan, header: TraceHeader, shape: ModelShape, *, blocks_given: bool) -> Rule:
    own = (shape.num_layers, shape.num_kv_heads, shape.head_dim, header.engine.block_size)
    planned = (plan.num_layers, plan.num_kv_heads, plan.head_dim, plan.block_size)
    if own != planned or _bytes_of(header.dtype) != sizing.bytes_of_cached(plan):
        return Rule.OTHER_MODEL
    if blocks_given:
        return Rule.GIVEN
    return Rule.NEEDED if header.backend == "paged" else Rule.MEMORY


def _expected(plan: Plan, rule: Rule) -> int | None:
    match rule:
        case Rule.MEMORY:
            return sizing.num_blocks(plan)
        case Rule.NEEDED:
            needed = plan.max_num_seqs * sizing.blocks_per_request(plan)
            share = int(plan.free_memory * plan.gpu_memory_utilization)
            return max(1, min(needed, share // sizing.block_bytes(plan)))
        case _:
            return None


def _bytes_of(dtype: str) -> int:
    """Of a number of K or V, by the name of an engine's dtype: int8 weights compute in float32."""
    return 2 if dtype in ("float16", "bfloat16") else 4


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f} GiB"
