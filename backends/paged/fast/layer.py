"""What a decoder layer is made of, laid for ``fast/model.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from backends.paged.attention import PagedStep
from backends.paged.fast.linear import GatedLinear, Linear


@dataclass(frozen=True)
class HeadShape:
    """The same in all layers."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    """Of every RMSNorm."""
    scaling: float
    """Of attention scores."""


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one decoder layer."""

    attention_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """Of every head of Q and K (Qwen 3) ``[heads + kv_heads, head_dim]``."""
    attention_out: Linear
    mlp_norm: torch.Tensor
    gated: GatedLinear
    mlp_out: Linear


AllLayers = Callable[[torch.Tensor, torch.Tensor, PagedStep], None]
"""``hidden [tokens, hidden_size]``, in place, with the rotation of each token ``[tokens, head_dim / 2]``;
for steps in which every token is a decode row."""
