"""Sizes out of a config.json: real ones, and those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.errors import InvalidRequest
from backends.model_config import EXAMPLES, examples, read_config
from backends.models.describe import describe, read_json
from tests.tiny_models import ARCHITECTURES, Architecture, make_tiny_model

PUBLISHED = {
    "facebook/opt-125m": 125_239_296,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
}
"""Parameters as the models' own pages give them, or their weights add up to."""

LLAMA = EXAMPLES["meta-llama/Meta-Llama-3-8B"]


def test_the_parameters_of_the_examples_are_the_published_ones() -> None:
    assert {model.name: model.shape.num_parameters for model in examples()} == PUBLISHED
    assert all(model.source.startswith(f"https://huggingface.co/{model.name}/") for model in examples())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_parameters_follow_from_the_sizes_as_real_weights_count_them(
    tmp_path: Path, architecture: Architecture
) -> None:
    folder = make_tiny_model(tmp_path / architecture, architecture)
    counted = describe(folder, architecture, "").shape
    read = read_config(read_json(folder / "config.json"))
    assert counted.num_parameters
    assert read.shape == counted
    assert read.dtype == "float32"


def test_an_architecture_that_is_not_known_keeps_its_parameters_to_itself() -> None:
    read = read_config(LLAMA | {"architectures": ["GPTNeoXForCausalLM"]})
    assert read.shape.num_parameters is None
    assert read.shape.num_kv_heads == 8


def test_options_that_add_weights_are_counted() -> None:
    plain = read_config(LLAMA).shape.num_parameters
    assert plain is not None
    biased = read_config(LLAMA | {"attention_bias": True, "mlp_bias": True}).shape.num_parameters
    assert biased == plain + 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    tied = read_config(LLAMA | {"tie_word_embeddings": True}).shape.num_parameters
    assert tied == plain - 128256 * 4096


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in LLAMA.items() if name != key}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "not a causal language model"),
        (without("hidden_size"), "does not say 'hidden_size'"),
        (without("intermediate_size"), "does not say 'intermediate_size'"),
        (without("intermediate_size") | {"intermediate_size": None}, "does not say 'intermediate_size'"),
        (LLAMA | {"num_hidden_layers": "many"}, "num_hidden_layers .* it is 'many'"),
        (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers .* it is True"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads .* it is 0"),
        (LLAMA | {"vocab_size": 10**9}, "vocab_size .* it is 1000000000"),
        (LLAMA | {"num_key_value_heads": 64}, "do not go together"),
        (LLAMA | {"hidden_size": 8}, "do not go together"),
        (LLAMA | {"sliding_window": 4096}, "sliding window of 4096"),
        (LLAMA | {"kv_lora_rank": 512}, "compressed"),
        (LLAMA | {"architectures": ["MambaForCausalLM"], "state_size": 16}, "state space"),
        (LLAMA | {"architectures": "LlamaForCausalLM"}, "architectures"),
        (LLAMA | {"architectures": [7]}, "architectures"),
        (LLAMA | {"model_type": ["llama"]}, "model_type"),
        (LLAMA | {"layer_types": 5}, "layer_types"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_words(config: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        read_config(config)
    assert refused.value.field == "config"
