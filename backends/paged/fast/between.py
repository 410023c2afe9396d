"""What lies between the products of a layer, in torch's own operations: on any device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from backends.paged.kv_cache import KVCache

RMSNorm = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""``x [rows, size]``, weight ``[size]``, epsilon → the same shape as ``x``."""

RotateAndWrite = Callable[
    [KVCache, int, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, float], None
]
"""See ``rotate_and_write``."""


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.rms_norm(x, weight.shape, weight, eps)


def rotate_and_write(
    cache: KVCache,
    layer: int,
    qkv: torch.Tensor,
    rotation: torch.Tensor,
    slot_mapping: torch.Tensor,
    qk_norm: torch.Tensor | None,
    eps: float,
) -> None:
    """Rotate Q and K in place, and put K and V into the cache.

    ``qkv [tokens, heads + 2 kv_heads, head_dim]``, pairs that turn together side by side;
    ``rotation [tokens, head_dim / 2]`` complex; ``slot_mapping [tokens]``; ``qk_norm`` the weights of
    an RMSNorm of each head of Q and K ``[heads + kv_heads, head_dim]``, with its epsilon.
    """
    tokens, num_heads, head_dim = qkv.shape
    kv_heads = cache.slots.shape[-2]
    rotated = qkv[:, : num_heads - kv_heads]
    if qk_norm is not None:
        rotated.copy_(torch.rms_norm(rotated, (head_dim,), None, eps).mul_(qk_norm))
    torch.view_as_complex(rotated.view(tokens, -1, head_dim // 2, 2)).mul_(rotation[:, None])
    kv = qkv[:, num_heads - 2 * kv_heads :].view(tokens, 2, kv_heads, head_dim)
    cache.write(layer, kv, slot_mapping)
