"""Decode steps that are recorded once and then repeated as a whole, for a GPU: a step is some 15 operations
a layer, and Python starts each of them anew however small it is.

A recording (a CUDA graph) always has the same shapes and the same memory. So a step is copied into the
next larger one that there is, and the rest of that computes what nobody looks at::

    3 rows, the longest looks at 70 slots        recorded: 4 rows, 128 slots

    ids, positions        A  B  C                A  B  C  ·
    slot_mapping          9 13 21                9 13 21  s       s: the cache's spare slot
    slots            [3, 70]                [4, 128]              behind each length: masked
    logits           [3, vocab]             [4, vocab]            the last is dropped

All sizes are recorded before the engine is ready: what cannot be recorded is known then, and no request
waits for it.

Attention inside is ``attention.attend_decode``: K and V are gathered by slot, then torch's own SDPA. Not
FlexAttention over block tables: in torch 2.13 its kernel for one query a row (``flex_decoding``) takes
only groups of heads of a power of two, and SmolLM2's are three; the general one fills a tile of queries
with one. Its tiles are cut from blocks and at least 16 wide, and ours may hold a single slot. Nor
``varlen_attn``, which reads block tables, but in 16 bits only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import product

import torch

from backends.paged.attention import DecodeRows, PagedStep
from backends.paged.fast.model import FastModel
from backends.paged.kv_cache import KVCache
from backends.paged.model_runner import Model

LEAST_CONTEXT = 64
"""Of the recorded sizes, so that they are few."""

Compute = Callable[[], torch.Tensor]
Capture = Callable[[Compute], Compute]
"""Record a function → what repeats it, on the same memory, and gives its result again, written anew.
Raises ``CannotCapture``."""


class CannotCapture(Exception):
    """It cannot be recorded here, and why."""


def powers_of_two(first: int, last: int) -> list[int]:
    """From ``first`` to the first that is not less than ``last``."""
    powers = [first]
    while powers[-1] < last:
        powers.append(2 * powers[-1])
    return powers


class RecordedStep:
    """One size: the memory that a step is copied into, and the recording that works on it."""

    def __init__(
        self, model: FastModel, cache: KVCache, num_rows: int, context: int, capture: Capture
    ) -> None:
        self._model, self._cache = model, cache
        rows = torch.arange(num_rows, device=cache.slots.device)
        self._tokens = rows
        self._ids, self._positions = torch.zeros_like(rows), torch.zeros_like(rows)
        self._slot_mapping = torch.full_like(rows, cache.spare_slot)
        self._slots = torch.full((num_rows, context), cache.spare_slot, device=rows.device)
        self._lengths = torch.ones_like(rows)
        self._replay = capture(self._compute)

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep) -> torch.Tensor:
        """Logits ``[recorded rows, vocab]``: those of the step first. The next call overwrites them."""
        assert step.decode is not None
        num_rows, context = step.decode.slots.shape
        self._ids[:num_rows] = ids
        self._positions[:num_rows] = positions
        self._slots[:num_rows, :context] = step.decode.slots
        self._lengths[:num_rows] = step.decode.lengths
        self._slot_mapping[:num_rows] = step.slot_mapping
        # The other rows still read what an earlier step left here, to no effect. They must not write there.
        self._slot_mapping[num_rows:] = self._cache.spare_slot
        return self._replay()

    def _compute(self) -> torch.Tensor:
        """What is recorded: nothing in it may depend on numbers that change, but through the tensors."""
        rows = DecodeRows.of(self._tokens, self._slots, self._lengths, self._cache.slots.dtype)
        step = PagedStep(self._cache, self._slot_mapping, [], rows)
        return self._model(self._ids, self._positions, step, self._tokens)


class GraphedModel:
    """Implements ``model_runner.Model``: decode steps from recordings, all others as ``FastModel`` does."""

    split_up_to = 1

    def __init__(
        self, model: FastModel, cache: KVCache, max_num_seqs: int, max_model_len: int, capture: Capture
    ) -> None:
        """For steps of up to ``max_num_seqs`` rows on ``cache``. Leaves its spare slot undefined."""
        self.kernels = f"{model.kernels}, CUDA graphs"
        self._model, self._cache = model, cache
        self._rows = powers_of_two(1, max_num_seqs)
        self._contexts = powers_of_two(LEAST_CONTEXT, max_model_len)
        # The largest first: the others find room in the memory that it has used.
        sizes = product(reversed(self._rows), reversed(self._contexts))
        with torch.inference_mode():
            self._recorded = {size: RecordedStep(model, cache, *size, capture) for size in sizes}

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        if step.prefill or step.decode is None:
            return self._model(ids, positions, step, last_tokens)
        assert step.cache is self._cache
        num_rows, context = step.decode.slots.shape
        size = _at_least(num_rows, self._rows), _at_least(context, self._contexts)
        return self._recorded[size](ids, positions, step).index_select(0, last_tokens)


def with_graphs(
    model: FastModel, cache: KVCache, max_num_seqs: int, max_model_len: int, capture: Capture
) -> Model:
    """``model`` itself, saying why, where its steps cannot be recorded."""
    try:
        return GraphedModel(model, cache, max_num_seqs, max_model_len, capture)
    except CannotCapture as reason:
        model.kernels += f" (no CUDA graphs: {reason})"
        return model


def _at_least(number: int, sizes: list[int]) -> int:
    return sizes[bisect_left(sizes, number)]
