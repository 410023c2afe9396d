"""Where K and V lie: one tensor a layer, cut into blocks, addressed by slot.

::

    slots[layer]  [num_blocks * block_size + 1, 2, num_kv_heads, head_dim]  K, then V

    slot          0  1  2  3 │ 4  5  6  7 │ 8  9 10 11 │ …      block_size = 4
    block              0     │      1     │      2     │
    slot of token t of a sequence = block_table[t // block_size] * block_size + t % block_size

K and V of a token lie side by side, so that one copy writes them and one copy reads them. Behind the last
block is one slot more, which no block table names: what must be written, and nobody is to read, goes there.
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
        self.num_slots = num_blocks * block_size
        self.spare_slot = self.num_slots
        size = (shape.num_layers, self.num_slots + 1, 2, shape.num_kv_heads, shape.head_dim)
        self.slots = torch.zeros(size, dtype=dtype, device=device)

    def write(self, layer: int, kv: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Put K and V ``[tokens, 2, num_kv_heads, head_dim]`` where ``slot_mapping [tokens]`` says."""
        self.slots[layer].index_copy_(0, slot_mapping, kv)

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``slots [...]``, each ``[..., num_kv_heads, head_dim]``."""
        kv = self.slots[layer].index_select(0, slots.reshape(-1))
        keys, values = kv.view(*slots.shape, *kv.shape[1:]).unbind(-3)
        return keys, values

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copy whole blocks, all layers (copy on write): source → target."""
        if not pairs:
            return
        offsets = torch.arange(self.block_size, device=self.slots.device)
        ids = torch.tensor(pairs, device=self.slots.device) * self.block_size  # [pairs, 2]
        sources = (ids[:, :1] + offsets).reshape(-1)
        targets = (ids[:, 1:] + offsets).reshape(-1)
        self.slots.index_copy_(1, targets, self.slots.index_select(1, sources))


def bytes_per_block(shape: ModelShape, block_size: int, dtype: torch.dtype = torch.float32) -> int:
    return shape.kv_values_per_token * dtype.itemsize * block_size
