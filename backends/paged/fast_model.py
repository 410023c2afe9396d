"""The same forward pass with few, fast operations, for models built like Llama.

Per layer: two norms, QKV as one product, rotation of Q and K as one complex multiplication, one
write and one read of the KV cache, attention, and three products with what follows them fused in.
transformers' modules need some 60 operations for that; on a CPU, starting one takes microseconds
that a small model cannot hide. The result is ``plain_model.py``'s, but for the order of sums.

Rotary embeddings turn pairs of numbers. transformers pairs number i with i + head_dim / 2; here the
rows of the Q and K weights are laid so that each pair is side by side, a complex number. Both are
laid the same way, so their products are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from backends.paged.attention import PagedStep, attend
from backends.paged.kernels import Kernels
from backends.paged.linear import GatedLinear, Linear

KNOWN_MODELS = ("llama", "mistral", "qwen2", "qwen3")
KNOWN_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies are the same for every length."""


@dataclass(frozen=True)
class Layer:
    """Weights of one decoder layer, laid for this pass."""

    attention_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """Of every head of Q and K (Qwen 3) ``[heads + kv_heads, head_dim]``."""
    attention_out: Linear
    mlp_norm: torch.Tensor
    gated: GatedLinear
    mlp_out: Linear


class FastModel:
    """Implements ``model_runner.Model``."""

    def __init__(self, model: Any, kernels: Kernels, num_positions: int) -> None:
        """``model``: transformers' own (see ``reason_against``), for texts up to ``num_positions``."""
        config = model.config
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim = model.model.layers[0].self_attn.head_dim
        self.eps = config.rms_norm_eps
        self.scaling = model.model.layers[0].self_attn.scaling
        self.kernels = f"fast, {kernels.name}"
        self.attend_decode = kernels.attend_decode
        with torch.inference_mode():
            self.embedding = model.model.embed_tokens.weight
            self.layers = [self._layer(layer, kernels) for layer in model.model.layers]
            self.norm = model.model.norm.weight
            self.head = kernels.linear(model.lm_head.weight, None)
            self.rotation = _rotation(model.model.rotary_emb, num_positions)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.embedding.index_select(0, ids)  # [tokens, hidden_size]
        rotation = self.rotation.index_select(0, positions)[:, None]  # [tokens, 1, head_dim / 2]
        for index, layer in enumerate(self.layers):
            queries = self._write_kv(layer, index, hidden, rotation, step)
            attended = attend(step, index, queries, self.scaling, self.attend_decode)
            hidden = layer.attention_out.plus(attended.reshape(len(ids), -1), hidden)
            hidden = layer.mlp_out.plus(layer.gated(self._normed(hidden, layer.mlp_norm)), hidden)
        return self.head(self._normed(hidden.index_select(0, last_tokens), self.norm))

    def _write_kv(
        self, layer: Layer, index: int, hidden: torch.Tensor, rotation: torch.Tensor, step: PagedStep
    ) -> torch.Tensor:
        """Queries ``[tokens, heads, head_dim]``; K and V are in the cache."""
        tokens, num_rotated = hidden.shape[0], self.num_heads + self.num_kv_heads
        qkv = layer.qkv(self._normed(hidden, layer.attention_norm))
        qkv = qkv.view(tokens, num_rotated + self.num_kv_heads, self.head_dim)
        rotated = qkv[:, :num_rotated]
        if layer.qk_norm is not None:
            rotated.copy_(torch.rms_norm(rotated, (self.head_dim,), None, self.eps).mul_(layer.qk_norm))
        torch.view_as_complex(rotated.view(tokens, num_rotated, -1, 2)).mul_(rotation)
        kv = qkv[:, self.num_heads :].view(tokens, 2, self.num_kv_heads, self.head_dim)
        step.cache.write(index, kv, step.slot_mapping)
        return qkv[:, : self.num_heads]

    def _normed(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.rms_norm(hidden, weight.shape, weight, self.eps)

    def _layer(self, layer: Any, kernels: Kernels) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        weight = torch.cat((self._in_pairs(q.weight), self._in_pairs(k.weight), v.weight))
        bias = None
        if q.bias is not None:
            bias = torch.cat((self._in_pairs(q.bias), self._in_pairs(k.bias), v.bias))
        return Layer(
            attention_norm=layer.input_layernorm.weight,
            qkv=kernels.linear(weight, bias),
            qk_norm=self._qk_norm(attention),
            attention_out=kernels.linear(attention.o_proj.weight, attention.o_proj.bias),
            mlp_norm=layer.post_attention_layernorm.weight,
            gated=kernels.gated(mlp.gate_proj.weight, mlp.up_proj.weight),
            mlp_out=kernels.linear(mlp.down_proj.weight, mlp.down_proj.bias),
        )

    def _in_pairs(self, weight: torch.Tensor) -> torch.Tensor:
        """Rows i and i + head_dim / 2 of every head, side by side ``[heads * head_dim, ...]``."""
        halves = weight.view(-1, 2, self.head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)

    def _qk_norm(self, attention: Any) -> torch.Tensor | None:
        if not hasattr(attention, "q_norm"):
            return None
        of_q, of_k = self._in_pairs(attention.q_norm.weight), self._in_pairs(attention.k_norm.weight)
        return torch.stack([of_q] * self.num_heads + [of_k] * self.num_kv_heads)


def reason_against(model: Any) -> str | None:
    """Why this pass cannot compute ``model``; ``None`` where it can."""
    config = model.config
    if config.model_type not in KNOWN_MODELS:
        return f"{config.model_type} is not one of {', '.join(KNOWN_MODELS)}"
    rotation = config.rope_parameters["rope_type"]
    if rotation not in KNOWN_ROTATIONS:
        return f"rotary embeddings of type {rotation}"
    if getattr(config, "sliding_window", None) is not None:
        return "a sliding window"
    if config.hidden_act != "silu":
        return f"the activation {config.hidden_act}"
    if getattr(config, "mlp_bias", False):
        return "biases in the MLP"
    return None


def _rotation(rotary: Any, num_positions: int) -> torch.Tensor:
    """``e^(i · position · frequency)``, complex ``[positions, head_dim / 2]``."""
    frequencies = rotary.inv_freq.float()
    angles = torch.arange(num_positions, device=frequencies.device).float()[:, None] * frequencies
    return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)
