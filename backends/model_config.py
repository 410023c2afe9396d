"""What a ``config.json`` tells of a model's size, and models to begin with.

The number of parameters stands in no ``config.json``. For the architectures below it follows from the
sizes; of another one it must be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from backends.errors import InvalidRequest
from backends.models import shape_of, unsupported_reason
from backends.records import ModelShape

LARGEST_SIZE = 10_000_000
"""Of a layer, a vocabulary, a text: beyond it a configuration is a mistake."""
SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "intermediate_size",
    "ffn_dim",
    "word_embed_proj_dim",
    "max_position_embeddings",
)


class _Kinds(msgspec.Struct):
    """What else of a configuration is looked at, and what it must be."""

    architectures: list[str] = []
    model_type: str | None = None
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    kv_lora_rank: int | None = None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the calculator needs it."""

    name: str
    source: str
    """Where the sizes were read."""
    architecture: str
    shape: ModelShape
    max_position_embeddings: int | None
    dtype: str | None
    """What its weights are saved in."""


def read_config(config: Mapping[str, Any], name: str = "", source: str = "config.json") -> ModelFacts:
    """Raises ``InvalidRequest`` for what is no configuration, or of a kind whose memory is counted
    otherwise."""
    config = {key: value for key, value in config.items() if value is not None}  # null: not said
    for key in SIZES:
        _check_size(key, config.get(key))
    try:
        msgspec.convert(config, _Kinds)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"config.json: {error}.", field="config") from None
    if reason := unsupported_reason(config) or _compressed(config):
        raise InvalidRequest(reason, field="config")
    try:
        shape = shape_of(config)
    except KeyError as error:
        raise InvalidRequest(f"config.json does not say {error}.", field="config") from None
    if 0 in (shape.head_dim, shape.num_kv_heads) or shape.num_kv_heads > shape.num_attention_heads:
        raise InvalidRequest(
            f"{shape.num_attention_heads} heads, {shape.num_kv_heads} KV heads and a hidden size of "
            f"{shape.hidden_size} do not go together.",
            field="config",
        )
    dtype = config.get("dtype") or config.get("torch_dtype")
    return ModelFacts(
        name=name or str(config.get("_name_or_path") or config["architectures"][0])[:100],
        source=source,
        architecture=str(config["architectures"][0]),
        shape=msgspec.structs.replace(shape, num_parameters=num_parameters(config, shape)),
        max_position_embeddings=config.get("max_position_embeddings"),
        dtype=str(dtype).removeprefix("torch.") if dtype else None,
    )


def _check_size(key: str, value: object) -> None:
    if value is not None and not (type(value) is int and 1 <= value <= LARGEST_SIZE):
        raise InvalidRequest(
            f"{key} of config.json must be a whole number from 1 to {LARGEST_SIZE:,}; it is {value!r:.60}.",
            field="config",
        )


def _compressed(config: Mapping[str, Any]) -> str | None:
    if config.get("kv_lora_rank"):
        return (
            f"{config['architectures'][0]} keeps K and V compressed (kv_lora_rank {config['kv_lora_rank']}): "
            "2 × layers × KV heads × head dim is not what a token takes."
        )
    return None


def num_parameters(config: Mapping[str, Any], shape: ModelShape) -> int | None:
    """Elements of all tensors, tied weights counted once; ``None`` for an architecture not known here."""
    try:
        match config["architectures"][0]:
            case "OPTForCausalLM":
                return _opt(config, shape)
            case "LlamaForCausalLM" | "MistralForCausalLM" | "Qwen2ForCausalLM" | "Qwen3ForCausalLM" as name:
                return _gated(config, shape, name)
            case _:
                return None
    except KeyError as error:
        raise InvalidRequest(f"config.json does not say {error}.", field="config") from None


def _gated(config: Mapping[str, Any], shape: ModelShape, architecture: str) -> int:
    """Llama and its kin: a gated MLP, RMS norms, rotary positions, which have no weights."""
    hidden, inner = shape.hidden_size, int(config["intermediate_size"])
    queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention = hidden * (queries + 2 * keys) + queries * hidden
    if architecture == "Qwen2ForCausalLM":
        attention += queries + 2 * keys
    elif config.get("attention_bias"):
        attention += queries + 2 * keys + hidden
    if architecture == "Qwen3ForCausalLM":
        attention += 2 * shape.head_dim  # a norm for queries, one for keys
    mlp = 3 * hidden * inner + (2 * inner + hidden if config.get("mlp_bias") else 0)
    embeddings = shape.vocab_size * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    return embeddings + shape.num_layers * (attention + mlp + 2 * hidden) + hidden


def _opt(config: Mapping[str, Any], shape: ModelShape) -> int:
    """OPT: learned positions, two of them beyond the limit, and a bias everywhere."""
    hidden, inner = shape.hidden_size, int(config["ffn_dim"])
    width = int(config.get("word_embed_proj_dim") or hidden)
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    embeddings = shape.vocab_size * width * (1 if config.get("tie_word_embeddings", True) else 2)
    positions = (int(config["max_position_embeddings"]) + 2) * hidden
    projections = 0 if width == hidden else 2 * width * hidden
    has_last_norm = config.get("do_layer_norm_before", True) and not config.get("_remove_final_layer_norm")
    return (
        embeddings + positions + projections + shape.num_layers * layer + (2 * hidden if has_last_norm else 0)
    )


def examples() -> list[ModelFacts]:
    """Models to begin with, from their published configurations."""
    return [
        read_config(config, name, f"https://huggingface.co/{name}/blob/main/config.json")
        for name, config in EXAMPLES.items()
    ]


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, inner: int, vocab: int, length: int, **rest: Any
) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": length,
        "torch_dtype": "bfloat16",
        **rest,
    }


EXAMPLES: dict[str, dict[str, Any]] = {
    "facebook/opt-125m": {
        "architectures": ["OPTForCausalLM"],
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "ffn_dim": 3072,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
    },
    "HuggingFaceTB/SmolLM2-135M-Instruct": _llama(30, 576, 9, 3, 1536, 49152, 8192, tie_word_embeddings=True),
    "Qwen/Qwen3-0.6B": _llama(
        28,
        1024,
        16,
        8,
        3072,
        151936,
        40960,
        architectures=["Qwen3ForCausalLM"],
        head_dim=128,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen2.5-7B-Instruct": _llama(
        28, 3584, 28, 4, 18944, 152064, 32768, architectures=["Qwen2ForCausalLM"]
    ),
    "meta-llama/Meta-Llama-3-8B": _llama(32, 4096, 32, 8, 14336, 128256, 8192),
    "meta-llama/Llama-3.1-70B": _llama(80, 8192, 64, 8, 28672, 128256, 131072),
}
