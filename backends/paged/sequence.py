"""One text on its way: its tokens, how many of them have K and V, and in which blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Where a sequence is. ``waiting → running → finished``, with ``preempted`` as a way back."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """Its blocks were taken back; it waits at the front of the queue and starts again."""
    FINISHED = "finished"


@dataclass(eq=False)
class Sequence:
    """Tokens and block table of one sample.

    ::

        block_size = 4, 10 tokens, 9 of them computed

        token_ids     t0 t1 t2 t3 │ t4 t5 t6 t7 │ t8 t9
        computed       ✓  ✓  ✓  ✓ │  ✓  ✓  ✓  ✓ │  ✓  ·
        block_table        7      │      2      │   5
        slot of t9 = 5 * 4 + 1
    """

    request_id: str
    token_ids: list[int]
    """Prompt and output."""
    num_prompt_tokens: int
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    """Tokens whose K and V are in the cache."""
    num_cached_tokens: int = 0
    """The part of them that prefix caching found, when it was last admitted."""
    block_table: list[int] = field(default_factory=list)
    """Block ids, in the order of the tokens they hold."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Hashes of the full blocks, each over all tokens up to its end; grown as needed."""
    cache_salt: str | None = None
    """Only sequences with the same one find each other's blocks."""
    num_forks: int = 0
    """Samples that will fork off when the prompt is computed; places in the batch are kept for them."""
    num_preemptions: int = 0
    was_scheduled: bool = False

    @classmethod
    def of(cls, request_id: str, prompt_ids: list[int], cache_salt: str | None = None) -> Sequence:
        """A new sequence with nothing computed."""
        return cls(request_id, list(prompt_ids), len(prompt_ids), cache_salt=cache_salt)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_places(self) -> int:
        """Rows of a step that it takes, or will take."""
        return 1 + self.num_forks

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_new_tokens(self) -> int:
        """Tokens that still have to be computed: 1 while decoding, more while prefilling."""
        return len(self.token_ids) - self.num_computed_tokens
