"""What a model is, read from the small files of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from backends.errors import EngineUnavailable
from backends.records import ModelShape

FULL_ATTENTION = "full_attention"
STATE_SPACE_KEYS = ("state_size", "ssm_state_size", "ssm_cfg", "mamba_d_state", "mamba_d_conv", "d_state")
STATE_SPACE_TYPES = frozenset({"rwkv", "recurrent_gemma", "xlstm"})


class PreparedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that every engine can load from ``path``, without any network."""

    name: str
    """As shown: the last part of what was asked for."""
    path: str
    """The folder, also for ``AutoTokenizer`` and ``AutoModelForCausalLM``."""
    architecture: str
    """Its class in transformers, such as ``LlamaForCausalLM``."""
    shape: ModelShape
    max_position_embeddings: int
    """Longest prompt plus answer the model was made for, in tokens."""
    eos_token_ids: tuple[int, ...]
    has_chat_template: bool
    tokenizer_file: str
    """A ``tokenizer.json`` for the ``tokenizers`` library."""
    checksum: str
    """SHA-256 over the checksums of all its files."""

    @property
    def weight_bytes(self) -> int:
        """Of its weights, as they lie on the disk."""
        return sum(path.stat().st_size for path in Path(self.path).glob("*.safetensors"))


def unsupported_reason(config: Mapping[str, Any]) -> str | None:
    """Why no engine here can run a model with this ``config.json``, with its name; else ``None``.

    The engines keep one K and one V for every token of a request. A sliding window forgets
    tokens, a state space keeps no tokens at all.
    """
    name = _architecture(config) or config.get("model_type") or "This model"
    if not (_architecture(config) or "").endswith("ForCausalLM"):
        return f"{name} is not a causal language model, the only kind that can be served here."
    if config.get("model_type") in STATE_SPACE_TYPES or any(config.get(key) for key in STATE_SPACE_KEYS):
        return f"{name} is a state space model: it keeps no K and V per token, so no engine here can run it."
    others = sorted(set(config.get("layer_types") or ()) - {FULL_ATTENTION})
    if others:
        kinds = ", ".join(kind.replace("_", " ") for kind in others)
        return f"{name} has layers of another kind than full attention ({kinds}): no engine here can run it."
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        return f"{name} has a sliding window of {config['sliding_window']} tokens: no engine here can run it."
    return None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises ``EngineUnavailable`` for what is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{path.name} of the model cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise EngineUnavailable(f"{path.name} of the model is not a JSON object.")
    return content


def describe(folder: Path, name: str, checksum: str) -> PreparedModel:
    """What lies in a complete folder. Raises ``EngineUnavailable`` when something is missing."""
    config = read_json(folder / "config.json")
    return PreparedModel(
        name=name,
        path=str(folder),
        architecture=_architecture(config) or "",
        shape=_shape(config, folder),
        max_position_embeddings=_max_positions(config),
        eos_token_ids=_eos_token_ids(config, folder),
        has_chat_template=(folder / "chat_template.jinja").is_file(),
        tokenizer_file=str(folder / "tokenizer.json"),
        checksum=checksum,
    )


def _architecture(config: Mapping[str, Any]) -> str | None:
    architectures: list[str] = config.get("architectures") or []
    return architectures[0] if architectures else None


def shape_of(config: Mapping[str, Any], num_parameters: int | None = None) -> ModelShape:
    """The sizes a ``config.json`` tells. Raises ``KeyError`` with what it does not say."""
    heads = int(config["num_attention_heads"])
    hidden_size = int(config["hidden_size"])
    return ModelShape(
        num_layers=int(config["num_hidden_layers"]),
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden_size // heads),
        vocab_size=int(config["vocab_size"]),
        num_parameters=num_parameters,
    )


def _shape(config: Mapping[str, Any], folder: Path) -> ModelShape:
    try:
        return shape_of(config, _count_parameters(folder))
    except KeyError as error:
        raise EngineUnavailable(f"config.json of {_architecture(config)} does not say {error}.") from error


def _max_positions(config: Mapping[str, Any]) -> int:
    limit = config.get("max_position_embeddings") or config.get("n_positions")
    if limit is None:
        raise EngineUnavailable(
            f"config.json of {_architecture(config)} does not say how long a text may be."
        )
    return int(limit)


def _eos_token_ids(config: Mapping[str, Any], folder: Path) -> tuple[int, ...]:
    """The generation configuration decides where there is one: it may name several."""
    path = folder / "generation_config.json"
    generation = read_json(path) if path.is_file() else {}
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (eos,)


def _count_parameters(folder: Path) -> int:
    """Elements of all tensors, from the heads of the weight files; tied weights count once."""
    return sum(
        prod(tensor["shape"])
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in _safetensors_head(path).items()
        if name != "__metadata__"
    )


def _safetensors_head(path: Path) -> dict[str, Any]:
    """First 8 bytes: length of the head, little-endian; then the head, as JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head: dict[str, Any] = json.loads(file.read(length))
    return head
