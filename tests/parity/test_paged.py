"""The paged batcher chooses the tokens of ``model.generate``, however its work is cut up.

It has several ways to compute a step, and all do. The plain twin runs each prompt alone with
transformers' own attention and cache. Tiny random models prefer their tokens clearly, so equal means
equal; for the real one see ``test_paged_smollm2.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from backends.paged.plain_model import UnsupportedAttention, paged_attention
from tests.parity.twins import Kernels, Run, Twins
from tests.tiny_models import Architecture, prepare_tiny_model

PROMPTS = ["the", "the batch runs one step and every request in it", "안녕하세요 한 걸음에", "cache " * 6]


Variant = tuple[Architecture, Kernels]
TwinsOf = Callable[[Variant], Twins]

VARIANTS: list[Variant] = [
    ("llama", "plain"),
    ("llama", "fast"),
    ("qwen2", "fast"),  # biases
    ("qwen3", "fast"),  # a norm of every head
    ("opt", "plain"),  # no rotary embeddings: what "fast" does not know
    ("llama", "graphed"),
    ("qwen3", "graphed"),
    ("llama", "cuda"),
    ("qwen3", "cuda"),
]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def named(variant: Variant) -> str:
    return "-".join(variant)


every_variant = pytest.mark.parametrize(
    "variant",
    [pytest.param(v, id=named(v), marks=[needs_gpu] if v[1] == "cuda" else []) for v in VARIANTS],
)
both_kernels = pytest.mark.parametrize("variant", VARIANTS[:2], ids=named)


@pytest.fixture(scope="session")
def twins_of(tmp_path_factory: pytest.TempPathFactory) -> TwinsOf:
    @cache
    def load(variant: Variant) -> Twins:
        architecture, kernels = variant
        folder: Path = tmp_path_factory.mktemp(f"paged-{architecture}")
        return Twins.load(prepare_tiny_model(folder, architecture), kernels)

    return load


@every_variant
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_a_prompt_alone(twins_of: TwinsOf, variant: Variant, block_size: int) -> None:
    twins = twins_of(variant)
    for prompt in PROMPTS:
        run = Run(twins.core(block_size=block_size, num_blocks=2048 // block_size))
        run.add("A", prompt)
        assert run.finish()["A"] == twins.generate(prompt)


@every_variant
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_prompts_together_that_arrive_at_different_steps(
    twins_of: TwinsOf, variant: Variant, block_size: int
) -> None:
    twins = twins_of(variant)
    run = Run(twins.core(block_size=block_size, num_blocks=2048 // block_size))
    for prompt in PROMPTS:
        run.add(prompt, prompt)
        run.step()
        run.step()
    assert run.finish() == {prompt: twins.generate(prompt) for prompt in PROMPTS}
    assert any(len({row.phase for row in step.rows}) == 2 for step in run.steps), "no mixed step was run"


@every_variant
@pytest.mark.parametrize("budget", [*range(1, 8), 11, 16, 31])
def test_prompts_in_chunks_of_every_size(twins_of: TwinsOf, variant: Variant, budget: int) -> None:
    twins = twins_of(variant)
    run = Run(twins.core(budget=budget, block_size=4, num_blocks=256))
    for prompt in PROMPTS[:3]:
        run.add(prompt, prompt)
    assert run.finish() == {prompt: twins.generate(prompt) for prompt in PROMPTS[:3]}
    assert max(sum(row.num_scheduled_tokens for row in step.rows) for step in run.steps) <= budget


@every_variant
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_a_beginning_found_in_the_cache(twins_of: TwinsOf, variant: Variant, block_size: int) -> None:
    twins = twins_of(variant)
    run = Run(twins.core(block_size=block_size, num_blocks=2048 // block_size))
    for name, prompt in (("first", PROMPTS[1]), ("second", PROMPTS[1] + " again"), ("same", PROMPTS[1])):
        run.add(name, prompt)
        run.finish()
        assert run.tokens[name] == twins.generate(prompt)
    cached = {
        row.request_id: row.num_cached_tokens
        for step in run.steps
        for row in step.rows
        if row.num_cached_tokens
    }
    assert set(cached) == {"second", "same"}


@every_variant
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_text_that_was_preempted(twins_of: TwinsOf, variant: Variant, prefix_caching: bool) -> None:
    twins = twins_of(variant)
    run = Run(twins.core(block_size=4, num_blocks=24, prefix_caching=prefix_caching))
    prompts = [PROMPTS[0], PROMPTS[2], "one", "two", "three", "every"]
    for prompt in prompts:
        run.add(prompt, prompt)
    assert run.finish() == {prompt: twins.generate(prompt) for prompt in prompts}
    assert any(step.preempted_ids for step in run.steps), "nobody was preempted"


@every_variant
def test_logits_agree_with_transformers_own(twins_of: TwinsOf, variant: Variant) -> None:
    """Sums are ordered differently, so not to the last bit: to a millionth of their size."""
    twins = twins_of(variant)
    run = Run(twins.core())
    for prompt in PROMPTS:
        run.add(prompt, prompt)
    logits = run.core.runner.run(run.core.scheduler.schedule()).cpu()
    for row, prompt in enumerate(PROMPTS):
        with torch.inference_mode():
            expected = twins.plain(torch.tensor([twins.codec.encode(prompt)])).logits[0, -1]
        assert torch.allclose(logits[row], expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@both_kernels
def test_a_seed_gives_the_same_text_whatever_else_is_in_the_batch(
    twins_of: TwinsOf, variant: Variant
) -> None:
    twins = twins_of(variant)
    texts = []
    for company in ([], PROMPTS[1:], ["one", "two"] * 3):
        run = Run(twins.core())
        for number, prompt in enumerate(company[:2]):
            run.add(f"before {number}", prompt, temperature=1.0)
        run.add("A", PROMPTS[0], temperature=1.0, seed=42)
        for number, prompt in enumerate(company[2:]):
            run.add(f"after {number}", prompt, temperature=1.0)
        texts.append(run.finish()["A"])
    assert texts[0] == texts[1] == texts[2]


@both_kernels
def test_a_seed_survives_a_preemption(twins_of: TwinsOf, variant: Variant) -> None:
    twins = twins_of(variant)
    prompts = ["one", "two", "three", "every", "step"]
    texts = []
    for num_blocks in (64, 16):
        run = Run(twins.core(block_size=4, num_blocks=num_blocks))
        for seed, prompt in enumerate(prompts):
            run.add(prompt, prompt, temperature=1.0, seed=seed)
        texts.append(run.finish())
    assert any(step.preempted_ids for step in run.steps)
    assert texts[0] == texts[1]


@every_variant
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_samples_of_one_prompt_share_its_blocks_and_give_the_tokens_they_give_alone(
    twins_of: TwinsOf, variant: Variant, block_size: int
) -> None:
    twins = twins_of(variant)
    run = Run(twins.core(block_size=block_size, num_blocks=1024 // block_size))
    run.add("A", PROMPTS[1], n=3)
    first = run.step()
    assert first.kv is not None
    assert set(first.kv.ref_counts.values()) == {3}
    expected = twins.generate(PROMPTS[1])
    assert run.finish() == {"A": expected, "A/1": expected, "A/2": expected}


@both_kernels
def test_samples_with_a_seed_differ_and_the_first_is_the_one_of_the_seed_alone(
    twins_of: TwinsOf, variant: Variant
) -> None:
    twins = twins_of(variant)
    together, alone = Run(twins.core()), Run(twins.core())
    together.add("A", PROMPTS[0], n=3, temperature=1.5, seed=5)
    alone.add("A", PROMPTS[0], temperature=1.5, seed=5)
    texts = together.finish()
    assert texts["A"] == alone.finish()["A"]
    assert len({tuple(tokens) for tokens in texts.values()}) == 3


@both_kernels
def test_samples_survive_a_preemption(twins_of: TwinsOf, variant: Variant) -> None:
    twins = twins_of(variant)
    texts = []
    for num_blocks in (64, 14):
        run = Run(twins.core(block_size=4, num_blocks=num_blocks))
        run.add("A", PROMPTS[0], n=4, temperature=1.5, seed=5)
        texts.append(run.finish())
    assert any(step.preempted_ids for step in run.steps)
    assert texts[0] == texts[1]


def test_a_model_that_asks_for_another_attention_is_refused(twins_of: TwinsOf) -> None:
    module = twins_of(("llama", "plain")).plain.model.layers[0].self_attn
    query = torch.zeros(1, 4, 1, 8)
    with pytest.raises(UnsupportedAttention, match="LlamaAttention asks for softcap"):
        paged_attention(module, query, query, query, None, paged=None, scaling=1.0, softcap=30.0)  # type: ignore[arg-type]
