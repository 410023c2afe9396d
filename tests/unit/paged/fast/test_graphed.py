"""Recorded decode steps: padded, repeated, and nothing of one step in the next.

No GPU records here: ``tests/tape.py`` repeats operations with the tensors and numbers of the recording, as a
GPU would. ``tests/parity/test_paged.py`` runs whole texts this way, and on a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.models import PreparedModel
from backends.paged.attention import PagedStep, RowSpan
from backends.paged.fast.graphed import CannotCapture, GraphedModel, powers_of_two, with_graphs
from backends.paged.fast.kernels import DENSE
from backends.paged.fast.model import FastModel
from backends.paged.kv_cache import KVCache
from backends.paged.model_runner import Model
from backends.paged.plain_model import load_model
from tests.tape import on_tape
from tests.tiny_models import prepare_tiny_model

MAX_NUM_SEQS, MAX_MODEL_LEN = 5, 100


class Counted(FastModel):
    """Notes how many tokens each call of it was for."""

    calls: list[int]

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        self.calls.append(len(ids))
        return super().__call__(ids, positions, step, last_tokens)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    folder: Path = tmp_path_factory.mktemp("graphed")
    return prepare_tiny_model(folder, "qwen3")


@pytest.fixture(scope="module")
def model(prepared: PreparedModel) -> Counted:
    """In float64, so that what is equal is equal to many digits."""
    counted = Counted(load_model(str(prepared.path), "cpu").double(), DENSE, MAX_MODEL_LEN)
    counted.calls = []
    return counted


@pytest.fixture(scope="module")
def cache(prepared: PreparedModel) -> KVCache:
    num_blocks = MAX_NUM_SEQS * MAX_MODEL_LEN
    return KVCache(prepared.shape, num_blocks=num_blocks, block_size=1, dtype=torch.float64)


@pytest.fixture(scope="module")
def graphed(model: Counted, cache: KVCache) -> GraphedModel:
    return GraphedModel(model, cache, MAX_NUM_SEQS, MAX_MODEL_LEN, on_tape)


@torch.inference_mode()
def run(model: Model, cache: KVCache, contexts: list[int], seed: int, size: int = 1) -> torch.Tensor:
    """Logits of a step on random K and V: rows of ``size`` tokens each, the last looking at ``contexts``."""
    random = torch.Generator().manual_seed(seed)
    cache.slots[:, : cache.num_slots].normal_(generator=random)
    slots = torch.randperm(cache.num_slots, generator=random).view(MAX_NUM_SEQS, MAX_MODEL_LEN)
    spans = [RowSpan(size * row, size * (row + 1), context) for row, context in enumerate(contexts)]
    positions = torch.cat([torch.arange(context - size, context) for context in contexts])
    written = slots[torch.arange(len(contexts)).repeat_interleave(size), positions]
    ids = torch.randint(100, (len(positions),), generator=random)
    step = PagedStep.of(cache, written, spans, slots)
    return model(ids, positions, step, torch.arange(len(positions)).flip(0)).clone()


@given(
    steps=st.lists(
        st.lists(st.integers(1, MAX_MODEL_LEN), min_size=1, max_size=MAX_NUM_SEQS), min_size=1, max_size=4
    ),
    seed=st.integers(0, 2**32),
)
def test_a_recorded_step_computes_what_the_model_does_after_whatever_other_steps(
    model: Counted, cache: KVCache, graphed: GraphedModel, steps: list[list[int]], seed: int
) -> None:
    """Logits, and every slot that a block table can name."""
    for number, contexts in enumerate(steps):
        expected = run(model, cache, contexts, seed + number)
        expected_slots = cache.slots[:, : cache.num_slots].clone()
        model.calls.clear()
        logits = run(graphed, cache, contexts, seed + number)
        assert model.calls == []  # the recording alone
        torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(cache.slots[:, : cache.num_slots], expected_slots, rtol=1e-9, atol=1e-9)


def test_every_size_is_recorded_before_the_first_step_the_largest_first_and_touches_no_block(
    model: Counted, cache: KVCache
) -> None:
    cache.slots.fill_(1)
    model.calls.clear()
    GraphedModel(model, cache, MAX_NUM_SEQS, MAX_MODEL_LEN, on_tape)
    assert model.calls == [8, 8, 4, 4, 2, 2, 1, 1]  # rows; 128 slots, then 64
    assert bool((cache.slots[:, : cache.num_slots] == 1).all())
    assert bool((cache.slots[:, cache.spare_slot] != 1).any())


def test_a_step_with_a_prompt_in_it_is_not_recorded(
    model: Counted, cache: KVCache, graphed: GraphedModel
) -> None:
    expected = run(model, cache, [5, 9], seed=3, size=2)
    model.calls.clear()
    assert torch.equal(run(graphed, cache, [5, 9], seed=3, size=2), expected)
    assert model.calls == [4]


@pytest.mark.parametrize(
    ("first", "last", "powers"),
    [(1, 1, [1]), (1, 6, [1, 2, 4, 8]), (64, 40, [64]), (64, 129, [64, 128, 256])],
)
def test_sizes_are_powers_of_two_up_to_what_holds_the_largest_step(
    first: int, last: int, powers: list[int]
) -> None:
    assert powers_of_two(first, last) == powers


def test_what_cannot_be_recorded_is_computed_without_and_the_header_says_why(
    prepared: PreparedModel, cache: KVCache
) -> None:
    def refuse(compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        raise CannotCapture("CUDA error: out of memory")

    fast = FastModel(load_model(str(prepared.path), "cpu"), DENSE, MAX_MODEL_LEN)
    assert with_graphs(fast, cache, MAX_NUM_SEQS, MAX_MODEL_LEN, refuse) is fast
    assert fast.kernels == "fast, dense (no CUDA graphs: CUDA error: out of memory)"


def test_a_recording_holds_on_to_numbers_and_reads_tensors_anew() -> None:
    """Of the tape itself: else the tests above would prove nothing."""
    number, tensor = [2.0], torch.ones(3)
    replay = on_tape(lambda: tensor.view(3, 1) * number[0] + 1)
    number[0] = 5.0
    tensor.fill_(10)
    assert replay().tolist() == [[21.0]] * 3
    with pytest.raises(
        RuntimeError, match=r"_local_scalar_dense\.default is not permitted when stream is capturing"
    ):
        on_tape(lambda: tensor * tensor.sum().item())
