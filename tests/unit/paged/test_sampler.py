"""The sampler: greedy, temperature, top-k, top-p, seeds and log probabilities."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from backends.base import SamplingParams
from backends.paged.sampler import Draw, sample

PROBABILITIES = [0.5, 0.25, 0.125, 0.0625, 0.0625]
LOGITS = torch.tensor([[math.log(p) for p in PROBABILITIES]])


def draw(seed: int = 0, **sampling: float) -> Draw:
    params = SamplingParams(**{"temperature": 1.0, **sampling})
    return Draw(params, random.Random(seed))


def shares(count: int = 4000, **sampling: float) -> dict[int, float]:
    """How often each token is chosen."""
    chosen = sample(LOGITS.repeat(count, 1), [draw(seed, **sampling) for seed in range(count)])
    counts = Counter(choice.token_id for choice in chosen)
    return {token: counts[token] / count for token in sorted(counts)}


def test_temperature_zero_takes_the_most_likely() -> None:
    assert shares(temperature=0) == {0: 1.0}


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    found = shares()
    assert list(found) == [0, 1, 2, 3, 4]
    assert all(abs(found[token] - p) < 0.03 for token, p in enumerate(PROBABILITIES))


def test_a_low_temperature_sharpens() -> None:
    squares = [p**2 for p in PROBABILITIES]
    found = shares(temperature=0.5)
    assert all(abs(found.get(t, 0) - p / sum(squares)) < 0.03 for t, p in enumerate(squares))


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        ({"top_k": 1}, [0]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 0.6}, [0, 1]),
        ({"top_p": 0.75}, [0, 1]),
        ({"top_p": 1e-9}, [0]),
        ({"top_k": 3, "top_p": 0.8}, [0, 1]),
    ],
    ids=str,
)
def test_cuts_leave_the_likely_ones_possible(sampling: dict[str, float], possible: list[int]) -> None:
    assert list(shares(**sampling)) == possible


def test_each_row_has_its_own_way() -> None:
    logits = LOGITS.repeat(3, 1)
    greedy, cut, free = sample(logits, [draw(temperature=0), draw(top_k=1), draw(seed=5)])
    assert (greedy.token_id, cut.token_id) == (0, 0)
    assert free == sample(LOGITS, [draw(seed=5)])[0]


def test_a_seed_draws_the_same_alone_and_in_company() -> None:
    alone, company = draw(seed=3), draw(seed=3)
    others = [draw(seed) for seed in range(10, 17)]
    for _ in range(50):
        (expected,) = sample(LOGITS, [alone])
        together = sample(LOGITS.repeat(8, 1), [*others[:4], company, *others[4:]])
        assert together[4] == expected


@pytest.mark.parametrize("number", [0.0, 0.4999999, 0.5, 0.999999999, 1 - 2**-53])
def test_every_number_falls_on_a_possible_token(number: float) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return number

    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    (choice,) = sample(logits, [Draw(SamplingParams(temperature=1.0), Fixed())])
    assert choice.token_id == (1 if number < 0.5 else 3)


def test_logprobs_are_of_the_model_before_temperature_and_cuts() -> None:
    (choice,) = sample(LOGITS, [draw(temperature=0, logprobs=2)])
    assert choice.logprob == pytest.approx(math.log(0.5))
    assert [token for token, _ in choice.top_logprobs] == [0, 1]
    assert choice.top_logprobs[1][1] == pytest.approx(math.log(0.25))


def test_no_logprobs_unless_asked() -> None:
    (choice,) = sample(LOGITS, [draw()])
    assert (choice.logprob, choice.top_logprobs) == (None, ())


def test_no_rows_no_choices() -> None:
    assert sample(torch.empty(0, 5), []) == []
