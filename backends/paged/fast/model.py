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

from typing import Any

import torch

from backends.paged.attention import PagedStep, attend
from backends.paged.fast.kernels import Kernels
from backends.paged.fast.layer import HeadShape, LayerWeights

KNOWN_MODELS = ("llama", "mistral", "qwen2", "qwen3")
KNOWN_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings whose frequencies are the same for every length."""
MOST_HEAD_DIM = 512
"""Numbers of a head that ``c/attention.c`` has room for."""


class FastModel:
    """Implements ``model_runner.Model``."""

    def __init__(self, model: Any, kernels: Kernels, num_positions: int) -> None:
        """``model``: transformers' own (see ``reason_against``), for texts up to ``num_positions``."""
        attention = model.model.layers[0].self_attn
        self.shape = HeadShape(
            model.config.num_attention_heads,
            model.config.num_key_value_heads,
            attention.head_dim,
            model.config.rms_norm_eps,
            attention.scaling,
        )
        self.use = kernels
        self.kernels = f"fast, {kernels.name}"
        self.split_up_to = kernels.split_up_to
        with torch.inference_mode():
            self.embedding = model.model.embed_tokens.weight
            self.layers = [self._weights(layer, kernels) for layer in model.model.layers]
            self.norm = model.model.norm.weight
            self.head = kernels.linear(model.lm_head.weight, None)
            self.rotation = _rotation(model.model.rotary_emb, num_positions)
        self.all_layers = kernels.all_layers and kernels.all_layers(self.layers, self.shape)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.embedding.index_select(0, ids)  # [tokens, hidden_size]
        rotation = self.rotation.index_select(0, positions)  # [tokens, head_dim / 2]
        if self.all_layers is not None and not step.prefill:
            self.all_layers(hidden, rotation, step)
        else:
            for index, layer in enumerate(self.layers):
                hidden = self._layer(layer, index, hidden, rotation, step)
        return self.head(self._normed(hidden.index_select(0, last_tokens), self.norm))

    def _layer(
        self, layer: LayerWeights, index: int, hidden: torch.Tensor, rotation: torch.Tensor, step: PagedStep
    ) -> torch.Tensor:
        """``[tokens, hidden_size]`` → the same; K and V go into the cache."""
        shape = self.shape
        qkv = layer.qkv(self._normed(hidden, layer.attention_norm)).view(len(hidden), -1, shape.head_dim)
        self.use.rotate_and_write(
            step.cache, index, qkv, rotation, step.slot_mapping, layer.qk_norm, shape.eps
        )
        queries = qkv[:, : shape.num_heads]
        attended = attend(step, index, queries, shape.scaling, self.use.attend_decode)
        hidden = layer.attention_out.plus(attended.reshape(len(hidden), -1), hidden)
        return layer.mlp_out.plus(layer.gated(self._normed(hidden, layer.mlp_norm)), hidden)

    def _normed(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.use.rms_norm(hidden, weight, self.shape.eps)

    def _weights(self, layer: Any, kernels: Kernels) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        weight = torch.cat((self._in_pairs(q.weight), self._in_pairs(k.weight), v.weight))
        bias = None
        if q.bias is not None:
            bias = torch.cat((self._in_pairs(q.bias), self._in_pairs(k.bias), v.bias))
        return LayerWeights(
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
        halves = weight.view(-1, 2, self.shape.head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)

    def _qk_norm(self, attention: Any) -> torch.Tensor | None:
        if not hasattr(attention, "q_norm"):
            return None
        of_q, of_k = self._in_pairs(attention.q_norm.weight), self._in_pairs(attention.k_norm.weight)
        return torch.stack([of_q] * self.shape.num_heads + [of_k] * self.shape.num_kv_heads)


def reason_against(model: Any) -> str | None:
    """Why this pass cannot compute ``model``; ``None`` where it can."""
    config = model.config
    if config.model_type not in KNOWN_MODELS:
        return f"{config.model_type} is not one of {', '.join(KNOWN_MODELS)}"
    rotation = config.rope_parameters["rope_type"]
    if rotation not in KNOWN_ROTATIONS:
        return f"rotary embeddings of type {rotation}"
    head_dim = model.model.layers[0].self_attn.head_dim
    if head_dim > MOST_HEAD_DIM:
        return f"heads of {head_dim} numbers, more than {MOST_HEAD_DIM}"
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
