"""The work that every engine gets: the same token ids, the same number of new tokens."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_ID, LAST_ID = 100, 40_000
"""Token ids drawn from: text of SmolLM2's vocabulary, no special tokens."""


@dataclass(frozen=True)
class Workload:
    """So many requests at once, greedy, end-of-sequence ignored."""

    concurrent: int
    prompt_tokens: int = 29
    output_tokens: int = 64

    def prompts(self, seed: int) -> list[list[int]]:
        """Ids of each prompt. Another seed gives other prompts, so that no cache knows them."""
        draw = random.Random(seed)
        return [
            [draw.randint(FIRST_ID, LAST_ID) for _ in range(self.prompt_tokens)]
            for _ in range(self.concurrent)
        ]

    @property
    def num_tokens(self) -> int:
        return self.concurrent * self.output_tokens
