"""The memory calculator: the article's numbers, what must always hold, and each way of not starting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from backends import sizing
from backends.model_config import examples
from backends.sizing import GIB, CacheDtype, Dtype, Plan, Reason, verdict

SHAPES = {model.name: model.shape for model in examples()}


def plan_of(model: str = "facebook/opt-125m", **changes: Any) -> Plan:
    """The model in 16 bits on a card of 6 GiB of which 5.2 are free, unless said otherwise."""
    shape = SHAPES[model]
    told: dict[str, Any] = {
        "num_layers": shape.num_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_parameters": shape.num_parameters,
        "total_memory": 6 * GIB,
        "free_memory": int(5.2 * GIB),
        "max_model_len": 2048,
    }
    return Plan(**told | changes)


def test_a_token_of_opt_125m_takes_36864_bytes_in_16_bits() -> None:
    assert sizing.kv_bytes_per_token(plan_of()) == 36_864
    assert sizing.kv_bytes_per_token(plan_of(dtype=Dtype.FLOAT32)) == 2 * 36_864


def test_heads_that_share_k_and_v_are_counted_once() -> None:
    llama = plan_of("meta-llama/Meta-Llama-3-8B")
    assert sizing.kv_bytes_per_token(llama) == 131_072
    assert sizing.kv_bytes_per_token(llama.model_copy(update={"num_kv_heads": 32})) == 4 * 131_072


def test_two_gib_hold_58254_tokens_of_opt_125m() -> None:
    assert sizing.tokens_in(2 * GIB, plan_of()) == 58_254


def test_a_card_of_6_gb_with_5_2_free_fails_at_0_9_and_starts_at_half() -> None:
    refused = verdict(plan_of(gpu_memory_utilization=0.9))
    assert (refused.starts, refused.reason) == (False, Reason.NOT_FREE)
    assert refused.message is not None
    assert "(5.2/6.0 GiB) on startup is less than desired GPU memory utilization (0.9, 5.4 GiB)" in (
        refused.message
    )
    assert verdict(plan_of(gpu_memory_utilization=0.5)).starts


def test_a_card_of_24_gb_starts_at_0_9() -> None:
    empty = {"total_memory": 24 * GIB, "free_memory": int(23.5 * GIB), "gpu_memory_utilization": 0.9}
    assert verdict(plan_of(**empty)).starts
    assert verdict(plan_of("meta-llama/Meta-Llama-3-8B", max_model_len=8192, **empty)).starts


def test_a_small_model_takes_what_is_reserved_not_what_it_weighs() -> None:
    """0.23 GiB of weights on a card of 24: 90% of it is gone all the same."""
    plan = plan_of(total_memory=24 * GIB, free_memory=24 * GIB)
    assert round(sizing.weight_bytes(plan) / GIB, 2) == 0.23
    assert sizing.reserved_bytes(plan) / plan.total_memory == pytest.approx(0.9)
    assert sizing.kv_cache_bytes(plan) / sizing.reserved_bytes(plan) > 0.95


def test_weights_that_fill_what_is_reserved_leave_no_cache() -> None:
    plan = plan_of("meta-llama/Meta-Llama-3-8B", total_memory=16 * GIB, free_memory=16 * GIB)
    assert sizing.kv_cache_bytes(plan) < 0
    assert sizing.num_blocks(plan) == 0
    assert verdict(plan).reason is Reason.NO_KV_CACHE


def test_a_text_too_long_for_the_cache_is_refused_with_the_longest_that_fits() -> None:
    plan = plan_of("meta-llama/Meta-Llama-3-8B", total_memory=24 * GIB, free_memory=24 * GIB)
    assert verdict(plan.model_copy(update={"max_model_len": 8192})).starts
    refused = verdict(plan.model_copy(update={"max_model_len": 131_072}))
    longest = sizing.num_blocks(plan) * plan.block_size
    assert refused.reason is Reason.REQUEST_TOO_LONG
    assert f"the estimated maximum model length is {longest}." in (refused.message or "")
    assert verdict(plan.model_copy(update={"max_model_len": longest})).starts
    assert not verdict(plan.model_copy(update={"max_model_len": longest + 1})).starts


def test_cards_share_weights_and_heads() -> None:
    one = plan_of("meta-llama/Llama-3.1-70B", total_memory=80 * GIB, free_memory=80 * GIB)
    four = one.model_copy(update={"tensor_parallel_size": 4})
    assert verdict(one).reason is Reason.NO_KV_CACHE
    assert verdict(four).starts
    assert sizing.kv_bytes_per_token(four) * 4 == sizing.kv_bytes_per_token(one)
    assert sizing.weight_bytes(four) * 4 == pytest.approx(sizing.weight_bytes(one), abs=4)


def test_more_cards_than_kv_heads_hold_one_head_each() -> None:
    plan = plan_of("Qwen/Qwen2.5-7B-Instruct", tensor_parallel_size=7)
    assert sizing.kv_heads_per_card(plan) == 1


def test_heads_that_cannot_be_dealt_out_are_refused_first() -> None:
    refused = verdict(plan_of(tensor_parallel_size=5))
    assert refused.reason is Reason.HEADS_NOT_DIVISIBLE
    assert refused.message == (
        "Total number of attention heads (12) must be divisible by tensor parallel size (5)."
    )


def test_the_cache_takes_the_models_dtype_unless_it_is_told_otherwise() -> None:
    for dtype, num_bytes in {"float32": 4, "bfloat16": 2, "fp8": 2, "int8": 2}.items():
        assert sizing.bytes_of_cached(plan_of(dtype=dtype)) == num_bytes
    assert sizing.bytes_of_cached(plan_of(kv_cache_dtype=CacheDtype.FP8)) == 1


PLANS = st.builds(
    Plan,
    num_layers=st.integers(1, 100),
    num_attention_heads=st.sampled_from([8, 32, 64]),
    num_kv_heads=st.sampled_from([1, 2, 8]),
    head_dim=st.sampled_from([64, 128]),
    num_parameters=st.integers(10**6, 10**11),
    dtype=st.sampled_from(Dtype),
    kv_cache_dtype=st.sampled_from(CacheDtype),
    total_memory=st.just(80 * GIB),
    free_memory=st.integers(0, 80 * GIB),
    other_memory=st.integers(0, 4 * GIB),
    gpu_memory_utilization=st.floats(0.01, 1),
    max_model_len=st.integers(1, 200_000),
    max_num_seqs=st.integers(1, 1024),
    block_size=st.sampled_from([1, 16, 32, 128]),
    tensor_parallel_size=st.sampled_from([1, 2, 4, 8]),
)


@given(PLANS)
def test_blocks_never_hold_more_than_there_is_room_for(plan: Plan) -> None:
    kv = max(0, sizing.kv_cache_bytes(plan))
    slots = sizing.num_blocks(plan) * plan.block_size
    assert slots <= sizing.tokens_in(kv, plan) < slots + plan.block_size
    assert slots * sizing.kv_bytes_per_token(plan) <= kv


@given(PLANS)
def test_what_is_reserved_is_weights_rest_and_cache(plan: Plan) -> None:
    parts = sizing.weight_bytes(plan) + plan.other_memory + sizing.kv_cache_bytes(plan)
    assert parts == sizing.reserved_bytes(plan)


@given(PLANS, st.floats(0.01, 1))
def test_reserving_more_never_gives_fewer_blocks(plan: Plan, more: float) -> None:
    assume(more >= plan.gpu_memory_utilization)
    greater = plan.model_copy(update={"gpu_memory_utilization": more})
    assert sizing.num_blocks(greater) >= sizing.num_blocks(plan)


@given(PLANS, st.integers(1, 200_000))
def test_a_longer_limit_never_lets_more_requests_fit(plan: Plan, longer: int) -> None:
    assume(longer >= plan.max_model_len)
    asked = plan.model_copy(update={"max_model_len": longer})
    assert sizing.full_length_requests(asked) <= sizing.full_length_requests(plan)


@given(PLANS)
def test_it_starts_exactly_where_the_share_is_free_and_holds_one_request(plan: Plan) -> None:
    fits = sizing.full_length_requests(plan) >= 1
    is_free = sizing.reserved_bytes(plan) <= plan.free_memory
    assert verdict(plan).starts == (fits and is_free)


@given(PLANS)
def test_the_shares_it_names_are_the_ends_of_those_that_start(plan: Plan) -> None:
    lowest, highest = sizing.lowest_utilization(plan), sizing.highest_utilization(plan)
    starts = verdict(plan).starts
    near = min(abs(plan.gpu_memory_utilization - end) for end in (lowest, highest)) < 1e-9
    assert near or starts == (lowest <= plan.gpu_memory_utilization <= highest)


@given(PLANS)
def test_a_verdict_says_why_and_who_decides(plan: Plan) -> None:
    said = verdict(plan)
    assert said.starts == (said.reason is Reason.STARTS)
    assert (said.message is None) == (said.where is None) == said.starts


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 0),
        ("num_layers", 1.5),
        ("num_layers", "12"),
        ("num_parameters", 0),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.01),
        ("gpu_memory_utilization", float("nan")),
        ("total_memory", 2**51),
        ("free_memory", -1),
        ("max_model_len", 0),
        ("tensor_parallel_size", 0),
        ("dtype", "float64"),
        ("kv_cache_dtype", "int4"),
        ("unknown", 1),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        plan_of(**{field: value})


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"num_kv_heads \(13\) cannot exceed num_attention_heads \(12\)"
    ):
        plan_of(num_kv_heads=13)
    with pytest.raises(ValidationError, match=r"free_memory .* cannot exceed total_memory"):
        plan_of(free_memory=7 * GIB)
