"""What the worker has to tell the server, gathered into one message."""

from __future__ import annotations

from collections.abc import Sequence

from backends.records import AnyRecord
from backends.vllm_async.messages import VllmUpdate
from backends.worker_messages import Ended, Token


class Outbox:
    """Keeps the order of each kind; the server puts records first, then tokens, then ends."""

    def __init__(self) -> None:
        self.is_empty = True
        self._records: list[AnyRecord] = []
        self._tokens: list[Token] = []
        self._ended: list[Ended] = []

    def add(self, records: Sequence[AnyRecord], tokens: Sequence[Token], ended: Sequence[Ended]) -> None:
        """Something has happened, if only a queue that is longer than it was."""
        self.is_empty = False
        self._records += records
        self._tokens += tokens
        self._ended += ended

    def take(self, num_waiting: int | None, queues: dict[str, int]) -> VllmUpdate | None:
        """All of it, with the depths of the queues now; ``None`` where there is nothing."""
        if self.is_empty:
            return None
        update = VllmUpdate(
            records=self._records,
            tokens=self._tokens,
            ended=self._ended,
            num_waiting=num_waiting,
            queues=queues,
        )
        self.is_empty = True
        self._records, self._tokens, self._ended = [], [], []
        return update
