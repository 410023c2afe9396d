"""Logits → the next token of each sequence.

Each sequence draws from a generator of its own, one number a token: a seed gives the same text
whatever else is in the batch, and a preempted sequence goes on where it was.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from backends.base import SamplingParams


@dataclass(frozen=True)
class Choice:
    """A chosen token."""

    token_id: int
    logprob: float | None = None
    """Natural logarithm of its probability, before temperature and cuts; where asked for."""
    top_logprobs: tuple[tuple[int, float], ...] = ()
    """The most likely tokens with theirs, most likely first."""


@dataclass(frozen=True)
class Draw:
    """What decides a row's next token."""

    sampling: SamplingParams
    generator: random.Random


def sample(logits: torch.Tensor, draws: list[Draw]) -> list[Choice]:
    """Logits ``[rows, vocab]`` → a choice for each row."""
    logits = logits.float()
    token_ids = _most_likely(logits)  # [rows]
    random_rows = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if random_rows:
        probabilities = _probabilities(logits[random_rows], [draws[row].sampling for row in random_rows])
        uniform = [draws[row].generator.random() for row in random_rows]
        token_ids[random_rows] = _draw(probabilities, uniform)
    chosen: list[int] = token_ids.tolist()
    return [
        _with_logprobs(logits[row], token_id, draw.sampling.logprobs)
        for row, (token_id, draw) in enumerate(zip(chosen, draws, strict=True))
    ]


def _most_likely(logits: torch.Tensor) -> torch.Tensor:
    """``[rows]``. On a CPU by numpy, whose argmax is seven times as fast there as torch's."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy().argmax(axis=-1))
    return logits.argmax(dim=-1)


def _probabilities(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """``[rows, vocab]``, in float64: temperature, then top-k, then top-p, as vLLM orders them."""
    temperature = torch.tensor([p.temperature for p in params], device=logits.device)
    scaled = logits.double() / temperature[:, None]
    for row, p in enumerate(params):
        if 0 < p.top_k < scaled.shape[1]:
            scaled[row] = _keep_top_k(scaled[row], p.top_k)
        if p.top_p < 1:
            scaled[row] = _keep_top_p(scaled[row], p.top_p)
    return scaled.softmax(dim=-1)


def _keep_top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """All but the ``k`` largest become impossible ``[vocab]``."""
    kept = torch.full_like(logits, -torch.inf)
    values, indices = logits.topk(k)
    return kept.scatter_(0, indices, values)


def _keep_top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """The fewest most likely tokens whose probabilities reach ``p`` stay, at least one ``[vocab]``."""
    ordered, indices = logits.sort(descending=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    ordered[before >= p] = -torch.inf
    return torch.empty_like(logits).scatter_(0, indices, ordered)


def _draw(probabilities: torch.Tensor, uniform: list[float]) -> torch.Tensor:
    """One number in [0, 1) a row → the token in whose share of the line it falls ``[rows]``."""
    cumulative = probabilities.cumsum(dim=-1)
    # Scaled by the true sum, which rounding may leave short of 1; never past the last possible token.
    points = torch.tensor(uniform, dtype=torch.float64, device=cumulative.device) * cumulative[:, -1]
    token_ids = torch.searchsorted(cumulative, points[:, None], right=True).squeeze(1)
    last_possible = probabilities.shape[1] - 1 - (probabilities.flip(1) > 0).int().argmax(dim=1)
    return torch.minimum(token_ids, last_possible)


def _with_logprobs(logits: torch.Tensor, token_id: int, num_logprobs: int | None) -> Choice:
    if num_logprobs is None:
        return Choice(token_id)
    logprobs = logits.log_softmax(dim=-1)
    top = logprobs.topk(num_logprobs)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Choice(token_id, float(logprobs[token_id]), tuple(pairs))
