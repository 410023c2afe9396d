"""What needs no engine to run: memory by arithmetic, and lines by counting."""

from __future__ import annotations

from backends import code_view
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.sizing import (
    GIB,
    Dtype,
    Plan,
    full_length_requests,
    kv_bytes_per_token,
    kv_cache_bytes,
    reserved_bytes,
    tokens_in,
    weight_bytes,
)

CARD = 24 * GIB
OPT_125M = Plan(
    num_layers=12,
    num_attention_heads=12,
    num_kv_heads=12,
    head_dim=64,
    num_parameters=125_239_296,
    dtype=Dtype.FLOAT16,
    total_memory=CARD,
    free_memory=CARD,
    max_model_len=2048,
)


async def why_so_much_memory(_: Ground) -> Outcome:
    """opt-125m on a card of 24 GiB that nobody else uses, with vLLM's usual settings."""
    plan = OPT_125M
    reserved, weights, cache = reserved_bytes(plan), weight_bytes(plan), kv_cache_bytes(plan)
    return Outcome(
        measured=[
            derived("reserved", reserved / GIB, Unit.GIB),
            derived("weights", weights / GIB, Unit.GIB),
            derived("cache", cache / GIB, Unit.GIB),
            derived("per_token", kv_bytes_per_token(plan), Unit.BYTES),
            derived("tokens", tokens_in(cache, plan), Unit.TOKENS),
            derived("requests", full_length_requests(plan), Unit.REQUESTS),
        ],
        picture=Picture(
            series=("weights", "cache", "rest", "free"),
            bars=[
                [part / GIB for part in (weights, cache, reserved - weights - cache, CARD - reserved)],
            ],
            unit=Unit.GIB,
            stacked=True,
        ),
    )


PARTS = ("workload_manager", "model_executor", "model_worker", "engine", "messages")
BLOCKING_CALL = "backends/vllm_async/sync_mode.py::BlockingLLM"


async def lines_of_code(_: Ground) -> Outcome:
    """The naive engine's files, counted as they are now, and what calls vLLM."""
    [naive] = (engine for engine in code_view.engines() if engine.engine == "naive")
    lines = {file.path.removeprefix("backends/naive/").removesuffix(".py"): file for file in naive.files}
    return Outcome(
        measured=[
            measured("naive", naive.code_lines, Unit.LINES),
            *(measured(part, lines[part].code_lines, Unit.LINES) for part in PARTS),
            measured("blocking_call", code_view.find(BLOCKING_CALL).num_lines, Unit.LINES),
        ],
        picture=Picture(
            series=("lines",),
            bars=[[float(lines[part].code_lines)] for part in PARTS],
            unit=Unit.LINES,
        ),
    )
