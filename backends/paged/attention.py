"""Attention over block tables: every row of a packed batch reads its own blocks.

A step is one forward pass over all scheduled tokens, one behind the other, without padding::

    tokens        [ A A A A A │ B │ C ]      A: 5 tokens of a prompt, B and C: one each
    slot_mapping  where K and V of each are written
    rows          which tokens are whose, and the slots of all that each may look at
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from backends.paged.kv_cache import KVCache


@dataclass(frozen=True)
class RowSpan:
    """A row of a step: its tokens are ``[start:end]`` of the batch."""

    start: int
    end: int
    context: int
    """Tokens that its last token may look at, itself among them."""


@dataclass(frozen=True)
class PrefillRow:
    """A row with several tokens: queries ``[start:end]`` of the batch."""

    start: int
    end: int
    slots: torch.Tensor
    """Of everything it may look at, in order ``[num_computed + (end - start)]``."""


@dataclass(frozen=True)
class DecodeRows:
    """Rows with one token, computed together; their slots are padded, their inputs are not.

    Decode steps are such rows. So are the tokens of short prompts, taken one by one, where that is faster.
    """

    tokens: torch.Tensor
    """Where each row's token lies in the batch ``[rows]``."""
    slots: torch.Tensor
    """``[rows, longest]``; any behind the end of a row."""
    lengths: torch.Tensor
    """How many of its slots are each row's own ``[rows]``."""
    mask: torch.Tensor
    """Added to the scores: 0 where a slot is the row's own, else -∞ ``[rows, 1, 1, longest]``."""

    @classmethod
    def of(
        cls, tokens: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor, dtype: torch.dtype
    ) -> DecodeRows:
        """``dtype``: of the scores."""
        is_own = torch.arange(slots.shape[1], device=slots.device) < lengths[:, None]
        mask = torch.zeros(is_own.shape, dtype=dtype, device=slots.device)
        mask.masked_fill_(~is_own, -torch.inf)
        return cls(tokens, slots, lengths, mask[:, None, None, :])


AttendDecode = Callable[[KVCache, int, torch.Tensor, DecodeRows, float], torch.Tensor]
"""Cache, layer, queries ``[rows, heads, head_dim]``, rows, scaling → ``[rows, heads, head_dim]``."""


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
        cls,
        cache: KVCache,
        slot_mapping: torch.Tensor,
        spans: Rows[RowSpan],
        slots: torch.Tensor,
        split_up_to: int = 1,
    ) -> PagedStep:
        """``spans``: the rows, in the order of the batch; ``slots``: theirs ``[rows, longest or more]``.

        Rows that look at up to ``split_up_to`` tokens are taken apart into rows of one token.
        """
        prefill, decode = [], []
        for index, span in enumerate(spans):
            size = span.end - span.start
            if size == 1 or span.context <= split_up_to:
                first_context = span.context - size + 1
                decode += [SingleToken(span.start + i, index, first_context + i) for i in range(size)]
            else:
                prefill.append(PrefillRow(span.start, span.end, slots[index, : span.context]))
        return cls(cache, slot_mapping, prefill, _decode_rows(cache, decode, slots))


def attend(
    step: PagedStep, layer: int, queries: torch.Tensor, scaling: float, decode: AttendDecode
) -> torch.Tensor:
    """Let every row attend to its own slots: ``[tokens, heads, head_dim]`` → the same.

    All K and V of the step have been written, so a row may look at a block that another row of the
    same step fills.
    """
    if step.decode is not None and not step.prefill:
        return decode(step.cache, layer, queries, step.decode, scaling)
    output = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for row in step.prefill:
        output[row.start : row.end] = _attend_prefill(step.cache, layer, queries, row, scaling)
    if step.decode is not None:
        decoding = queries[step.decode.tokens]
        output[step.decode.tokens] = decode(step.cache, layer, decoding, step.decode, scaling)
    return output


def attend_decode(
    cache: KVCache, layer: int, queries: torch.Tensor, rows: DecodeRows, scaling: float
) -> torch.Tensor:
    """``[rows, heads, head_dim]``. The heads that share a KV head stand where a prefill's queries
    do, so K and V are read once for all of them."""
    keys, values = cache.read(layer, rows.slots)  # [rows, longest, kv_heads, head_dim]
    num_rows, heads, head_dim = queries.shape
    attended = scaled_dot_product_attention(
        queries.reshape(num_rows, keys.shape[2], -1, head_dim),  # [rows, kv_heads, group, head_dim]
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=rows.mask,
        scale=scaling,
    )
    return attended.reshape(num_rows, heads, head_dim)


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


class SingleToken(NamedTuple):
    """A decode row: its token in the batch, the row whose slots it looks at, and how many of them."""

    token: int
    row: int
    context: int


def _decode_rows(cache: KVCache, singles: list[SingleToken], slots: torch.Tensor) -> DecodeRows | None:
    if not singles:
        return None
    tokens, rows, lengths = torch.tensor(singles, device=slots.device).unbind(dim=1)
    longest = max(single.context for single in singles)
    return DecodeRows.of(tokens, slots[rows, :longest], lengths.contiguous(), cache.slots.dtype)
