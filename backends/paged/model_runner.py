"""Runs a step that the scheduler decided: one forward pass over its tokens, packed."""

from __future__ import annotations

from itertools import chain
from typing import Any, Protocol

import torch

from backends.paged.attention import PagedStep, RowSpan
from backends.paged.kv_cache import KVCache
from backends.paged.scheduler import ScheduledSequence, SchedulerOutput
from backends.paged.sequence import Sequence


class Model(Protocol):
    """A forward pass over packed tokens."""

    kernels: str
    """What computes it: a word for the header."""
    split_up_to: int
    """See ``attention.PagedStep.of``."""

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        """Token ids and positions ``[tokens]`` → logits ``[rows, vocab]`` after ``last_tokens [rows]``."""


class ModelRunner:
    """A model and its KV cache."""

    def __init__(self, model: Model, cache: KVCache) -> None:
        self.model = model
        self.cache = cache

    @property
    def device(self) -> torch.device:
        return self.cache.slots.device

    @torch.inference_mode()
    def run(self, output: SchedulerOutput) -> torch.Tensor:
        """Logits ``[sampling rows, vocab]`` for the rows that choose a token, in their order."""
        self.cache.copy_blocks(output.copies)
        ids: list[int] = []
        positions: list[int] = []
        spans: list[RowSpan] = []
        for row in output.rows:
            begin, end = row.num_computed_tokens, row.num_computed_tokens + row.num_scheduled_tokens
            spans.append(RowSpan(len(ids), len(ids) + row.num_scheduled_tokens, end))
            ids += row.sequence.token_ids[begin:end]
            positions += range(begin, end)
        slots = self._slots([row.sequence.block_table for row in output.rows])
        row_of_token = self._tensor(
            chain.from_iterable([row] * (span.end - span.start) for row, span in enumerate(spans))
        )
        position_ids = self._tensor(positions)
        step = PagedStep.of(
            self.cache, slots[row_of_token, position_ids], spans, slots, self.model.split_up_to
        )
        last_tokens = [span.end - 1 for span, row in zip(spans, output.rows, strict=True) if row.samples]
        return self.model(self._tensor(ids), position_ids, step, self._tensor(last_tokens))

    def _slots(self, block_tables: list[list[int]]) -> torch.Tensor:
        """Slots of each row's tokens, in order ``[rows, longest table * block_size]``; block 0 behind
        the end of a table."""
        longest = max(map(len, block_tables))
        padded = [table + [0] * (longest - len(table)) for table in block_tables]
        blocks = torch.tensor(padded, dtype=torch.long, device=self.device)
        size = self.cache.block_size
        slots = blocks[:, :, None] * size + torch.arange(size, device=self.device)
        return slots.view(len(padded), -1)

    def _tensor(self, numbers: Any) -> torch.Tensor:
        return torch.tensor(list(numbers), dtype=torch.long, device=self.device)


@torch.inference_mode()
def worst_difference(runner: ModelRunner, reference: Any, num_tokens: int = 8) -> float:
    """Largest difference of logits to ``reference``, transformers' own model, relative to their size.

    A model may ask for something that is not known here: better found at the start, on eight tokens,
    than in a text. All but the last go as a prompt, the last as a decode step. Leaves the pool's
    content undefined, so run it first.
    """
    num_tokens = min(num_tokens, runner.cache.num_slots)
    vocab_size = reference.config.vocab_size
    sequence = Sequence.of("check", [(7 * i + 1) % vocab_size for i in range(num_tokens)])
    sequence.block_table = list(range(-(-num_tokens // runner.cache.block_size)))
    parts = [(0, num_tokens - 1), (num_tokens - 1, 1)] if num_tokens > 1 else [(0, 1)]
    for computed, scheduled in parts:
        row = ScheduledSequence(sequence, scheduled, computed, 0, samples=True)
        logits = runner.run(SchedulerOutput([row], num_tokens=scheduled))
    ours = reference.config._attn_implementation
    reference.set_attn_implementation("sdpa")
    ids = torch.tensor([sequence.token_ids], device=runner.device)
    expected = reference(input_ids=ids, use_cache=False).logits[:, -1]
    reference.set_attn_implementation(ours)
    return float((logits - expected).abs().max() / expected.abs().max())
