"""A forward pass in one call, layer by layer, and with prompts whole or token by token: the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends.models import PreparedModel
from backends.paged.attention import PagedStep, RowSpan
from backends.paged.fast.kernels import DENSE, Kernels, of_compiled, of_compiled_int8
from backends.paged.fast.model import FastModel, reason_against
from backends.paged.kv_cache import KVCache
from backends.paged.plain_model import load_model
from tests.tiny_models import Architecture, prepare_tiny_model
from tests.unit.paged.fast.test_kernels import compiled_here

ROWS = [RowSpan(0, 5, 5), RowSpan(5, 6, 7), RowSpan(6, 9, 12), RowSpan(9, 10, 1)]
"""A prompt, a decode step after 6 tokens, a chunk of a prompt after 9, a prompt of one token."""
SLOTS = torch.randperm(64, generator=torch.Generator().manual_seed(0)).view(4, 16)


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    architecture: Architecture = request.param
    folder: Path = tmp_path_factory.mktemp(architecture)
    return prepare_tiny_model(folder, architecture)


def model_with(prepared: PreparedModel, kernels: Kernels) -> FastModel:
    return FastModel(load_model(str(prepared.path), "cpu"), kernels, 64)


@torch.inference_mode()
def run(model: FastModel, prepared: PreparedModel, split_up_to: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits after every token of ``ROWS``, and what is in the cache then."""
    cache = KVCache(prepared.shape, num_blocks=64, block_size=1)
    cache.slots.normal_(generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(row.context - (row.end - row.start), row.context) for row in ROWS])
    row_of_token = torch.tensor([index for index, row in enumerate(ROWS) for _ in range(row.start, row.end)])
    step = PagedStep.of(cache, SLOTS[row_of_token, positions], ROWS, SLOTS, split_up_to)
    ids = torch.arange(10) * 7 + 3
    return model(ids, positions, step, torch.arange(10)), cache.slots


@pytest.mark.parametrize("compiled", [of_compiled, of_compiled_int8])
def test_one_call_for_all_layers_computes_what_they_compute_one_by_one(
    prepared: PreparedModel, compiled: type[Kernels]
) -> None:
    model = model_with(prepared, compiled(compiled_here()))
    assert model.all_layers is not None
    in_one_call = run(model, prepared, split_up_to=256)
    model.all_layers = None
    one_by_one = run(model, prepared, split_up_to=256)
    assert all(map(torch.equal, in_one_call, one_by_one))


def test_prompts_token_by_token_are_prompts_as_a_whole(prepared: PreparedModel) -> None:
    expected = run(model_with(prepared, DENSE), prepared, split_up_to=1)
    compiled = model_with(prepared, of_compiled(compiled_here()))
    for model, split_up_to in (
        (compiled, 1),
        (compiled, 6),
        (compiled, 256),
        (model_with(prepared, DENSE), 256),
    ):
        result = run(model, prepared, split_up_to)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_heads_larger_than_the_kernels_have_room_for_are_left_to_the_plain_model(
    prepared: PreparedModel,
) -> None:
    loaded = load_model(str(prepared.path), "cpu")
    assert reason_against(loaded) is None
    loaded.model.layers[0].self_attn.head_dim = 513
    assert reason_against(loaded) == "heads of 513 numbers, more than 512"
