"""The functions of ``c/`` as torch sees them.

torch's own products keep a processor without AVX-512 waiting when a step has only a few rows, and each
of its small operations costs more to start than to do: see ``benchmarks/NOTES.md``.
"""

from __future__ import annotations

import ctypes

import torch

from backends.paged.attention import DecodeRows
from backends.paged.fast.declarations import declare
from backends.paged.fast.panels import Panels
from backends.paged.kv_cache import KVCache

VECTOR = 8
"""Numbers that are computed at once."""


class CompiledKernels:
    """They use torch's own threads, as many as torch uses. Owned by one thread, as its core is."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.c = declare(library)
        self._room = torch.empty(0)

    def multiply(self, panels: Panels, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """``x [rows, in] Wᵀ + bias + residual``, or ``silu(x Gᵀ) * (x Uᵀ)`` → ``[rows, out]``."""
        x = x.contiguous()
        rows = len(x)
        y = x.new_empty(rows, panels.struct.outputs)
        room = self.room(self.c.multiply_room(panels.struct, rows))
        self.c.multiply(panels.struct, x.data_ptr(), address(residual), y.data_ptr(), rows, room)
        return y

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """``between.rms_norm``"""
        x = x.contiguous()
        y = torch.empty_like(x)
        self.c.rms_norm(x.data_ptr(), weight.data_ptr(), eps, y.data_ptr(), *x.shape)
        return y

    def rotate_and_write(
        self,
        cache: KVCache,
        layer: int,
        qkv: torch.Tensor,
        rotation: torch.Tensor,
        slot_mapping: torch.Tensor,
        qk_norm: torch.Tensor | None,
        eps: float,
    ) -> None:
        """``between.rotate_and_write``"""
        kv = cache.slots[layer]
        assert all(tensor.is_contiguous() for tensor in (qkv, rotation, slot_mapping, kv))
        rows, num_heads, head_dim = qkv.shape
        kv_heads = kv.shape[2]
        self.c.rotate_and_write(
            *(qkv.data_ptr(), rotation.data_ptr(), address(qk_norm), eps),
            *(kv.data_ptr(), slot_mapping.data_ptr()),
            *(rows, num_heads - 2 * kv_heads, kv_heads, head_dim),
        )

    def attend_decode(
        self, cache: KVCache, layer: int, queries: torch.Tensor, rows: DecodeRows, scaling: float
    ) -> torch.Tensor:
        """What ``attention.attend_decode`` does, without copying K and V. Rows of ``queries`` may lie at
        any distance."""
        num_rows, heads, head_dim = queries.shape
        longest = rows.slots.shape[1]
        kv = cache.slots[layer]
        assert queries.stride()[1:] == (head_dim, 1)
        assert kv.is_contiguous()
        assert rows.slots.is_contiguous()
        output = queries.new_empty(num_rows, heads, head_dim)
        scores = self.room(num_rows * heads * (longest + -longest % VECTOR))
        self.c.attend_decode(
            *(queries.data_ptr(), kv.data_ptr(), rows.slots.data_ptr(), rows.lengths.data_ptr()),
            *(scores, output.data_ptr()),
            *(num_rows, heads, kv.shape[2], head_dim, longest, queries.stride(0), scaling),
        )
        return output

    def room(self, numbers: int) -> int:
        """Where one call may work. Made once for all: making it takes longer than a small product."""
        if len(self._room) < numbers:
            self._room = torch.empty(numbers)
        return self._room.data_ptr()


def address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
