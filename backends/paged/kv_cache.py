"""Where K and V lie: two tensors a layer, cut into blocks, addressed by slot.

::

    keys[layer]   [num_blocks * block_size, num_kv_heads, head_dim]

    slot          0  1  2  3 │ 4  5  6  7 │ 8  9 10 11 │ …      block_size = 4
    block              0     │      1     │      2     │
    slot of token t of a sequence = block_table[t // block_size] * block_size + t % block_size
"""

from __future__ import annotations

import torch

from backends.records import ModelShape


class KVCache:
    """Allocated once; which slots belong to whom is ``block_pool.BlockPool``'s business."""

    def __init__(
        self,
        shape: ModelShape,
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.block_size = block_size
        size = (shape.num_layers, num_blocks * block_size, shape.num_kv_heads, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Put K and V ``[tokens, num_kv_heads, head_dim]`` where ``slot_mapping [tokens]`` says."""
        self.keys[layer].index_copy_(0, slot_mapping, key)
        self.values[layer].index_copy_(0, slot_mapping, value)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``slots [...]``, as ``[..., num_kv_heads, head_dim]``."""
        flat = slots.reshape(-1)
        size = (*slots.shape, *self.keys.shape[2:])
        return self.keys[layer].index_select(0, flat).view(size), self.values[layer].index_select(
            0, flat
        ).view(size)

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copy whole blocks, all layers (copy on write): source → target."""
        if not pairs:
            return
        offsets = torch.arange(self.block_size, device=self.keys.device)
        ids = torch.tensor(pairs, device=self.keys.device) * self.block_size  # [pairs, 2]
        sources = (ids[:, :1] + offsets).reshape(-1)
        targets = (ids[:, 1:] + offsets).reshape(-1)
        for tensor in (self.keys, self.values):
            tensor.index_copy_(1, targets, tensor.index_select(1, sources))


def bytes_per_block(shape: ModelShape, block_size: int, dtype: torch.dtype = torch.float32) -> int:
    return shape.kv_values_per_token * dtype.itemsize * block_size
