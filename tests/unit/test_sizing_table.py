"""The table of the calculator: every figure with a formula that holds, and a running engine beside it."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from backends import sizing
from backends.records import EngineConfig, ModelShape, TraceHeader
from backends.sizing import GIB, Plan
from backends.sizing_table import Figure, Rule, Unit, figures, reported
from tests.factories import header

PLAN = Plan(
    num_layers=12,
    num_attention_heads=12,
    num_kv_heads=12,
    head_dim=64,
    num_parameters=125_239_296,
    total_memory=6 * GIB,
    free_memory=5 * GIB,
    gpu_memory_utilization=0.5,
    max_model_len=2048,
    max_num_seqs=16,
    block_size=16,
)
SHAPE = ModelShape(
    num_layers=12, hidden_size=768, num_attention_heads=12, num_kv_heads=12, head_dim=64, vocab_size=50272
)


def engine(
    backend: str = "vllm", *, dtype: str = "float16", num_blocks: int | None = 3000, block_size: int = 16
) -> TraceHeader:
    return msgspec.structs.replace(
        header(),
        backend=backend,
        dtype=dtype,
        shape=SHAPE,
        engine=EngineConfig(
            num_blocks=num_blocks, block_size=block_size, max_model_len=2048, max_num_seqs=16
        ),
    )


def by_key(plan: Plan) -> dict[str, Figure]:
    return {figure.key: figure for figure in figures(plan)}


@pytest.mark.parametrize("cards", [1, 4])
def test_the_filled_formula_of_every_figure_gives_its_value(cards: int) -> None:
    """Worked out as a reader would: × and ÷ as they stand, rounding as the formula's brackets say."""
    for figure in figures(PLAN.model_copy(update={"tensor_parallel_size": cards})):
        text = figure.filled.replace(",", "").replace("×", "*").replace("−", "-")
        text = text.replace("÷", "//" if "⌊" in figure.formula else "/")
        text = re.sub(r"([\d.]+) GiB", rf"(\1*{GIB})", text)
        assert re.fullmatch(r"[\d.*/()+ -]+", text), text
        value = eval(text)
        if "⌈" in figure.formula:
            value = math.ceil(value)
        assert value == pytest.approx(figure.value, rel=0.02), figure


def test_the_article_stands_in_the_table() -> None:
    told = by_key(PLAN)
    assert told["kv_bytes_per_token"].value == 36_864
    assert told["reserved"].value == 3 * GIB
    assert told["blocks_per_request"].value == 128
    assert told["full_length_requests"].value == told["num_blocks"].value // 128
    assert {figure.unit for figure in told.values()} == set(Unit)


def test_a_cache_that_is_not_there_holds_nothing() -> None:
    told = by_key(PLAN.model_copy(update={"gpu_memory_utilization": 0.01}))
    assert told["kv_cache"].value < 0
    for key in ("tokens", "num_blocks", "full_length_requests", "tokens_per_request"):
        assert told[key].value == 0


def test_an_engine_that_fills_its_memory_is_compared_block_by_block() -> None:
    told = reported(PLAN, engine(num_blocks=3000), blocks_given=False)
    assert told is not None
    assert (told.rule, told.expected_blocks) == (Rule.MEMORY, sizing.num_blocks(PLAN))
    assert told.agreement == pytest.approx(3000 / sizing.num_blocks(PLAN))
    assert told.kv_cache == 3000 * 16 * 36_864


def test_the_paged_batcher_takes_no_more_than_its_requests_need() -> None:
    told = reported(PLAN, engine("paged", num_blocks=2048), blocks_given=False)
    assert told is not None
    assert (told.rule, told.expected_blocks, told.agreement) == (Rule.NEEDED, 16 * 128, 1.0)
    small = PLAN.model_copy(update={"free_memory": GIB})
    told = reported(small, engine("paged", num_blocks=910), blocks_given=False)
    assert told is not None
    assert told.expected_blocks == int(0.5 * GIB) // (36_864 * 16)


def test_blocks_that_the_operator_gave_prove_nothing() -> None:
    told = reported(PLAN, engine("paged", num_blocks=12), blocks_given=True)
    assert told is not None
    assert (told.rule, told.expected_blocks, told.agreement) == (Rule.GIVEN, None, None)


@pytest.mark.parametrize("other", [{"dtype": "float32"}, {"block_size": 32}])
def test_another_dtype_or_block_size_is_not_compared(other: dict[str, object]) -> None:
    told = reported(PLAN, engine(**other), blocks_given=False)
    assert told is not None
    assert (told.rule, told.agreement) == (Rule.OTHER_MODEL, None)


def test_an_engine_without_blocks_or_without_a_shape_reports_nothing() -> None:
    assert reported(PLAN, engine(num_blocks=None), blocks_given=False) is None
    shapeless = msgspec.structs.replace(engine(), shape=None)
    assert reported(PLAN, shapeless, blocks_given=False) is None
