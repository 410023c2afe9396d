"""The paged engine's process without the process: its core, and what it refuses at the start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from backends.base import SamplingParams
from backends.models import PreparedModel
from backends.paged import worker
from backends.paged.config import WorkerConfig
from backends.paged.fast.kernels import UnsupportedDtype
from backends.paged.kv_cache import KVCache
from backends.paged.model_runner import worst_difference
from backends.paged.plain_model import UnsupportedAttention, load_model
from backends.paged.worker import build_core
from backends.records import FinishReason, StepRecord
from backends.settings import Settings
from backends.worker_messages import AddRequest, WorkerUpdate
from tests.tape import on_tape
from tests.tiny_models import ARCHITECTURES, Architecture, prepare_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def llama(folder: Path) -> PreparedModel:
    return prepare_tiny_model(folder, "llama", tokenizer="words")


def config(model: PreparedModel, **changes: int | str | None) -> WorkerConfig:
    values = {
        "max_model_len": 64,
        "block_size": 4,
        "num_blocks": 32,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "dtype": "float32",
        "kernels": "fast",
    }
    return WorkerConfig(
        model=model, cache_dir=str(Settings().cache_dir), device="cpu", memory_share=0.5, **(values | changes)
    )  # type: ignore[arg-type]


def added(name: str = "A", max_tokens: int = 3) -> AddRequest:
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0)
    return AddRequest(request_id=name, prompt_ids=[10, 11, 12], sampling=sampling)


@pytest.mark.parametrize("kernels", ["fast", "plain"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_compared_with_its_own_attention_at_the_start(
    folder: Path, architecture: Architecture, kernels: str
) -> None:
    model = prepare_tiny_model(folder, architecture)
    core = build_core(config(model, kernels=kernels))
    assert 0 <= worst_difference(core.runner, load_model(model.path, "cpu")) < 1e-5
    assert core.runner.model.kernels.startswith("plain" if architecture == "opt" else kernels)


def test_a_model_that_the_fast_kernels_do_not_know_says_why(folder: Path) -> None:
    core = build_core(config(prepare_tiny_model(folder, "opt")))
    assert core.runner.model.kernels == "plain (opt is not one of llama, mistral, qwen2, qwen3)"


def test_a_model_whose_logits_differ_is_refused_by_name(
    llama: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "worst_difference", lambda *_: 0.25)
    with pytest.raises(
        UnsupportedAttention, match=r"LlamaForCausalLM differs by 25\.0% from its own attention"
    ):
        build_core(config(llama))


@pytest.mark.parametrize(("kernels", "name"), [("fast", "fast, dense, CUDA graphs"), ("plain", "plain")])
def test_on_a_gpu_decode_steps_are_recorded_unless_plain_ones_are_asked_for(
    llama: PreparedModel, monkeypatch: pytest.MonkeyPatch, kernels: str, name: str
) -> None:
    """The model says that it lies on a GPU; a tape records in CUDA's place."""
    loaded = load_model(llama.path, "cpu")
    monkeypatch.setattr(type(loaded), "device", torch.device("cuda"))
    monkeypatch.setattr(worker, "CudaGraphs", lambda: on_tape)
    cache = KVCache(llama.shape, num_blocks=32, block_size=4)
    assert worker._float32_model(config(llama, kernels=kernels), loaded, cache).kernels == name


def test_int8_says_how_far_it_is_from_float32(llama: PreparedModel) -> None:
    core = build_core(config(llama, dtype="int8"))
    assert re.fullmatch(
        r"fast, (compiled|fbgemm) int8.*; on a text of \d+ tokens, \d+% of the most likely tokens are those "
        r"of float32, mean KL 0\.\d{3} nats",
        core.runner.model.kernels,
    )
    core.add(added(max_tokens=5))
    tokens = []
    while core.has_work():
        tokens += core.step().tokens
    assert len(tokens) == 5


def test_int8_is_refused_in_words_where_the_model_is_not_known(folder: Path) -> None:
    with pytest.raises(UnsupportedDtype, match="int8 does not know this model: opt is not one of llama"):
        build_core(config(prepare_tiny_model(folder, "opt"), dtype="int8"))


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_the_check_sees_a_wrong_attention(llama: PreparedModel, kernels: str) -> None:
    core = build_core(config(llama, kernels=kernels))
    slots_of = core.runner._slots
    core.runner._slots = lambda tables: 0 * slots_of(tables)  # type: ignore[method-assign]  # all in one slot
    assert worst_difference(core.runner, load_model(llama.path, "cpu")) > 1e-3


def test_by_default_the_pool_holds_the_longest_texts_of_a_full_batch(llama: PreparedModel) -> None:
    core = build_core(config(llama, num_blocks=None))
    assert core.pool.num_blocks == 4 * (64 // 4)


def test_the_pool_limits_the_text_where_it_is_smaller_than_the_model(llama: PreparedModel) -> None:
    core = build_core(config(llama, num_blocks=2))
    core.add(added(max_tokens=60))
    tokens = []
    while core.has_work():
        update = core.step()
        tokens += update.tokens
    assert len(tokens) == 2 * 4 - 3
    assert update.ended[0].reason is FinishReason.LENGTH


def test_an_abort_that_comes_after_the_end_is_no_matter(llama: PreparedModel) -> None:
    core = build_core(config(llama))
    core.add(added(max_tokens=1))
    core.step()
    assert core.abort("A") == WorkerUpdate()


def test_an_abort_right_before_the_step_that_would_end_it_ends_it_once(llama: PreparedModel) -> None:
    core = build_core(config(llama))
    core.add(added(max_tokens=2))
    core.step()
    (ended,) = core.abort("A").ended
    assert ended.reason is FinishReason.ABORT
    assert not core.has_work()
    core.pool.check_integrity([])


def test_an_abort_while_a_prompt_is_computed_in_chunks_frees_its_blocks(llama: PreparedModel) -> None:
    core = build_core(config(llama, max_num_batched_tokens=2))
    core.add(added())
    (step,) = core.step().records
    assert isinstance(step, StepRecord)
    assert step.rows[0].num_scheduled_tokens == 2
    update = core.abort("A")
    assert len(update.records) == 1
    assert core.pool.num_free == core.pool.num_blocks
