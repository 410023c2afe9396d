"""Runs a step that the scheduler decided: one forward pass over its tokens, packed."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from backends.paged import attention
from backends.paged.kv_cache import KVCache
from backends.paged.scheduler import ScheduledSequence, SchedulerOutput
from backends.paged.sequence import Sequence


class ModelRunner:
    """A model and its KV cache."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.model = model.eval()
        self.cache = cache

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @torch.inference_mode()
    def run(self, output: SchedulerOutput) -> torch.Tensor:
        """Logits ``[sampling rows, vocab]`` for the rows that choose a token, in their order."""
        self.cache.copy_blocks(output.copies)
        ids: list[int] = []
        positions: list[int] = []
        slot_mapping: list[torch.Tensor] = []
        rows: list[tuple[int, int, torch.Tensor]] = []
        for row in output.rows:
            start, end = row.num_computed_tokens, row.num_computed_tokens + row.num_scheduled_tokens
            slots = self._slots(row.sequence, end)
            rows.append((len(ids), len(ids) + row.num_scheduled_tokens, slots))
            ids += row.sequence.token_ids[start:end]
            positions += range(start, end)
            slot_mapping.append(slots[start:end])
        last_tokens = [end - 1 for (_, end, _), row in zip(rows, output.rows, strict=True) if row.samples]
        logits: torch.Tensor = self.model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=torch.tensor([positions], device=self.device),
            use_cache=False,  # ours is written by paged_attention
            logits_to_keep=torch.tensor(last_tokens, dtype=torch.long, device=self.device),
            paged=attention.PagedStep.of(self.cache, torch.cat(slot_mapping), rows),
        ).logits[0]
        return logits

    def _slots(self, sequence: Sequence, num_tokens: int) -> torch.Tensor:
        """Slots of the first ``num_tokens`` tokens, in order ``[num_tokens]``."""
        size = self.cache.block_size
        blocks = torch.tensor(sequence.block_table, device=self.device)
        slots = blocks[:, None] * size + torch.arange(size, device=self.device)
        return slots.reshape(-1)[:num_tokens]


def load_model(path: str, device: str) -> Any:
    """Weights of a prepared model, with attention over block tables."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation=attention.NAME, local_files_only=True
    )
    return model.to(device).eval()


def worst_difference(runner: ModelRunner, vocab_size: int, num_tokens: int = 8) -> float:
    """Largest difference of logits to transformers' own attention, relative to their size.

    A model may ask for something in its attention that ours does not know: better found at the
    start, on eight tokens, than in a text. Leaves the pool's content undefined, so run it first.
    """
    num_tokens = min(num_tokens, runner.cache.keys.shape[1])
    sequence = Sequence.of("check", [(7 * i + 1) % vocab_size for i in range(num_tokens)])
    sequence.block_table = list(range(-(-num_tokens // runner.cache.block_size)))
    logits = runner.run(
        SchedulerOutput([ScheduledSequence(sequence, num_tokens, 0, 0, samples=True)], num_tokens=num_tokens)
    )
    runner.model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        ids = torch.tensor([sequence.token_ids], device=runner.device)
        expected = runner.model(input_ids=ids, use_cache=False).logits[:, -1]
    runner.model.set_attn_implementation(attention.NAME)
    return float((logits - expected).abs().max() / expected.abs().max())
