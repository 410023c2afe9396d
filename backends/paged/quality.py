"""How far a quantized model is from its float32 self, on a fixed text: measured at the start, and shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from backends.paged.attention import PagedStep, RowSpan
from backends.paged.kv_cache import KVCache
from backends.paged.model_runner import Model

TEXT = """\
A server that answers one request after the other keeps everybody waiting: the weights are read from
memory for every token, and one token is all that comes of it. Read them once for sixteen requests, and
sixteen tokens come of it in nearly the same time. That is what a batch is for. In 1969 two people walked
on the moon; the third stayed in orbit and counted. def mean(values): return sum(values) / len(values)
What is the capital of France? The capital of France is Paris. 7 + 5 = 12, and 12 - 5 = 7.
"""


@dataclass(frozen=True)
class Difference:
    """Of two models' next-token distributions, over all positions of a text."""

    num_tokens: int
    equal: float
    """Share of positions where both find the same token the most likely."""
    mean_kl: float
    """Mean of KL(float32 ‖ quantized), in nats."""

    def __str__(self) -> str:
        return (
            f"on a text of {self.num_tokens} tokens, {self.equal:.0%} of the most likely tokens are "
            f"those of float32, mean KL {self.mean_kl:.3f} nats"
        )


@torch.inference_mode()
def difference(model: Model, reference: Any, cache: KVCache, token_ids: list[int]) -> Difference:
    """Between ``model`` and transformers' own ``reference``; leaves the cache's content undefined."""
    token_ids = token_ids[: cache.num_slots]
    ids = torch.tensor(token_ids)
    positions = torch.arange(len(ids))
    step = PagedStep.of(cache, positions, [RowSpan(0, len(ids), len(ids))], positions[None])
    ours = model(ids, positions, step, positions).log_softmax(dim=-1)
    theirs = reference(input_ids=ids[None], use_cache=False).logits[0].log_softmax(dim=-1)
    divergence = (theirs.exp() * (theirs - ours)).sum(dim=-1)
    equal = (ours.argmax(dim=-1) == theirs.argmax(dim=-1)).float().mean()
    return Difference(len(ids), float(equal), float(divergence.mean()))
