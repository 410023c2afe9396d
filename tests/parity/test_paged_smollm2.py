"""The paged batcher on SmolLM2 itself: ``model.generate``'s tokens, but for ties.

Sums are ordered differently, so logits agree to ``TOLERANCE`` and not to the last bit. Where the two
most likely tokens lie closer than that, either may win, and the texts part there: each part is
followed to the first token that differs, and that one is shown to be such a near tie.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from backends.models import PreparedModel, prepare_model
from backends.settings import Settings
from tests.parity.twins import Kernels, Run, Twins

TOLERANCE = 1e-3
"""Of logits, whose size is about 20."""
TOKENS = 12
PROMPTS = (
    "Once upon a time",
    "The three primary colours are",
    "def fibonacci(n):\n    ",
    "Why does an inference server batch requests? Because each step of decoding reads every weight",
    "서울은",
)


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def smollm2() -> PreparedModel:
    cache_dir = Settings().cache_dir
    return asyncio.run(prepare_model("smollm2", cache_dir, lambda fraction, sentence: None))


@pytest.fixture(scope="module")
def twins(smollm2: PreparedModel) -> Twins:
    return Twins.load(smollm2, "fast")


@pytest.fixture(scope="module")
def expected(twins: Twins) -> dict[str, list[int]]:
    return {prompt: twins.generate(prompt, TOKENS) for prompt in PROMPTS}


def assert_same(twins: Twins, found: dict[str, list[int]], expected: dict[str, list[int]]) -> None:
    """Equal, or parted at a near tie."""
    for prompt, tokens in found.items():
        pairs = enumerate(zip(tokens, expected[prompt], strict=True))
        first = next((index for index, (ours, theirs) in pairs if ours != theirs), None)
        if first is not None:
            logits = next_logits(twins, prompt, tuple(tokens[:first]))
            gap = logits[expected[prompt][first]] - logits[tokens[first]]
            assert abs(float(gap)) < TOLERANCE, f"{prompt!r} parts at token {first}, not at a tie: {gap}"


@cache
def next_logits(twins: Twins, prompt: str, tokens: tuple[int, ...]) -> torch.Tensor:
    """``[vocab]``, by transformers' own attention."""
    with torch.inference_mode():
        logits: torch.Tensor = twins.plain(torch.tensor([[*twins.codec.encode(prompt), *tokens]])).logits
    return logits[0, -1]


def run_together(twins: Twins, *, stagger: bool = False, **core: int) -> Run:
    run = Run(twins.core(**core))
    for prompt in PROMPTS:
        run.add(prompt, prompt, TOKENS)
        if stagger:
            run.step()
    run.finish()
    return run


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_logits_agree(twins: Twins, smollm2: PreparedModel, kernels: Kernels) -> None:
    run = Run((twins if kernels == "fast" else Twins.load(smollm2, kernels)).core())
    for prompt in PROMPTS:
        run.add(prompt, prompt)
    logits = run.core.runner.run(run.core.scheduler.schedule())
    for row, prompt in enumerate(PROMPTS):
        assert float((logits[row] - next_logits(twins, prompt, ())).abs().max()) < TOLERANCE


@pytest.mark.parametrize("block_size", [1, 16])
def test_mixed_batches(twins: Twins, expected: dict[str, list[int]], block_size: int) -> None:
    run = run_together(twins, stagger=True, block_size=block_size, num_blocks=1024 // block_size)
    assert any(len({row.phase for row in step.rows}) == 2 for step in run.steps)
    assert_same(twins, run.tokens, expected)


def test_prompts_in_chunks(twins: Twins, expected: dict[str, list[int]]) -> None:
    assert_same(twins, run_together(twins, budget=7).tokens, expected)


def test_texts_that_were_preempted(twins: Twins, expected: dict[str, list[int]]) -> None:
    run = run_together(twins, block_size=4, num_blocks=17)
    assert any(step.preempted_ids for step in run.steps)
    assert_same(twins, run.tokens, expected)


def test_beginnings_found_in_the_cache(twins: Twins, expected: dict[str, list[int]]) -> None:
    run = Run(twins.core(block_size=4))
    for turn in range(2):
        for prompt in PROMPTS:
            run.add(f"{turn} {prompt}", prompt, TOKENS)
        run.finish()
    cached = [row for step in run.steps for row in step.rows if row.num_cached_tokens]
    assert cached
    assert_same(twins, {prompt: run.tokens[f"1 {prompt}"] for prompt in PROMPTS}, expected)
