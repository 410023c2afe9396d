"""Attention over block tables: every row of a packed batch reads its own blocks.

A step is one forward pass over all scheduled tokens, one behind the other, without padding::

    tokens        [ A A A A A │ B │ C ]      A: 5 tokens of a prompt, B and C: one each
    slot_mapping  where K and V of each are written
    rows          which tokens are whose, and the slots of all that each may look at

transformers calls ``paged_attention`` in place of its own (``AttentionInterface``), once a layer.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from backends.paged.kv_cache import KVCache

NAME = "servescope_paged"
UNKNOWN_TO_US = ("sliding_window", "softcap", "s_aux", "sinks", "chunk_size")
"""Arguments by which a model asks for another kind of attention."""


class UnsupportedAttention(Exception):
    """The model asks for something that this attention does not do."""


@dataclass(frozen=True)
class PrefillRow:
    """A row with several tokens: queries ``[start:end]`` of the batch."""

    start: int
    end: int
    slots: torch.Tensor
    """Of everything it may look at, in order ``[num_computed + (end - start)]``."""


@dataclass(frozen=True)
class DecodeRows:
    """All rows with one token, computed together; their slots are padded, their inputs are not."""

    tokens: torch.Tensor
    """Where each row's token lies in the batch ``[rows]``."""
    slots: torch.Tensor
    """``[rows, longest]``; 0 behind the end of a row."""
    mask: torch.Tensor
    """True where a slot is the row's own ``[rows, 1, 1, longest]``."""


@dataclass(frozen=True)
class PagedStep:
    """What the attention of one step must know; the same for every layer."""

    cache: KVCache
    slot_mapping: torch.Tensor
    """``[tokens]``"""
    prefill: list[PrefillRow]
    decode: DecodeRows | None

    @classmethod
    def of(
        cls, cache: KVCache, slot_mapping: torch.Tensor, rows: Rows[tuple[int, int, torch.Tensor]]
    ) -> PagedStep:
        """``rows``: start, end, and slots of each row, in the order of the batch."""
        prefill = [PrefillRow(start, end, slots) for start, end, slots in rows if end - start > 1]
        decode = [(start, slots) for start, end, slots in rows if end - start == 1]
        return cls(cache, slot_mapping, prefill, _decode_rows(decode) if decode else None)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: PagedStep,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Write K and V of this layer, then let every row attend to its own slots.

    ``query [1, heads, tokens, head_dim]``, ``key`` and ``value [1, kv_heads, tokens, head_dim]``;
    returns ``[1, tokens, heads, head_dim]``. All K and V are written before any is read, so a row
    may look at a block that another row of the same step fills.
    """
    _refuse_unknown(module, others)
    layer: int = module.layer_idx  # type: ignore[assignment]
    paged.cache.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1), paged.slot_mapping)
    queries = query[0].transpose(0, 1)  # [tokens, heads, head_dim]
    output = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for row in paged.prefill:
        output[row.start : row.end] = _attend_prefill(paged.cache, layer, queries, row, scaling)
    if paged.decode is not None:
        output[paged.decode.tokens] = _attend_decode(paged.cache, layer, queries, paged.decode, scaling)
    return output.unsqueeze(0), None


def _attend_prefill(
    cache: KVCache, layer: int, queries: torch.Tensor, row: PrefillRow, scaling: float
) -> torch.Tensor:
    """``[row tokens, heads, head_dim]``. Token i looks at all before the row, and at the row up to i."""
    keys, values = cache.read(layer, row.slots)  # [context, kv_heads, head_dim]
    query = queries[row.start : row.end].transpose(0, 1)  # [heads, row tokens, head_dim]
    group = query.shape[0] // keys.shape[1]
    num_computed = keys.shape[0] - query.shape[1]
    mask = None
    if num_computed:
        shape = (query.shape[1], keys.shape[0])
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril(num_computed)
    attended = scaled_dot_product_attention(
        query.unsqueeze(0),
        keys.transpose(0, 1).repeat_interleave(group, dim=0).unsqueeze(0),
        values.transpose(0, 1).repeat_interleave(group, dim=0).unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
    )
    return attended[0].transpose(0, 1)


def _attend_decode(
    cache: KVCache, layer: int, queries: torch.Tensor, rows: DecodeRows, scaling: float
) -> torch.Tensor:
    """``[rows, heads, head_dim]``. The heads that share a KV head stand where a prefill's queries
    do, so K and V are read once for all of them."""
    keys, values = cache.read(layer, rows.slots)  # [rows, longest, kv_heads, head_dim]
    query = queries[rows.tokens]  # [rows, heads, head_dim]
    kv_heads = keys.shape[2]
    attended = scaled_dot_product_attention(
        query.view(query.shape[0], kv_heads, -1, query.shape[2]),  # [rows, kv_heads, group, head_dim]
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=rows.mask,
        scale=scaling,
    )
    return attended.reshape(query.shape)


def _decode_rows(rows: list[tuple[int, torch.Tensor]]) -> DecodeRows:
    slots = torch.nn.utils.rnn.pad_sequence([slots for _, slots in rows], batch_first=True)
    lengths = torch.tensor([len(slots) for _, slots in rows], device=slots.device)
    mask = torch.arange(slots.shape[1], device=slots.device) < lengths[:, None]
    tokens = torch.tensor([start for start, _ in rows], device=slots.device)
    return DecodeRows(tokens, slots, mask[:, None, None, :])


def _refuse_unknown(module: torch.nn.Module, others: dict[str, Any]) -> None:
    for name in UNKNOWN_TO_US:
        if others.get(name) is not None:
            raise UnsupportedAttention(f"{type(module).__name__} asks for {name}, which is not done here.")


AttentionInterface.register(NAME, paged_attention)
