"""Who waits and who runs, in the worker: one request alone, or one static batch.

::

    waiting: A  b c  D  e            capital: sequential, small: static
    batches: A │ b c e │ D           nobody joins a batch that runs

A row of a static batch cannot leave it: ``model.generate()`` computes all rows until the last one
is done. A row that is done, or whose reader has gone, is computed for nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from backends.generate.messages import STATIC
from backends.records import FinishReason
from backends.text import OutputText
from backends.worker_messages import AddRequest, Ended, Token


@dataclass(eq=False)
class Row:
    """One request in a batch, or waiting for one."""

    request: AddRequest
    output: OutputText
    most_tokens: int
    """``max_tokens``, or less where the model's limit comes first."""
    num_generated: int = 0
    undelivered: list[Token] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    rest: str = ""
    told: bool = False
    """Whoever asked knows how it ended."""

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def static(self) -> bool:
        """It asks for a static batch."""
        return self.request.mode == STATIC

    @property
    def live(self) -> bool:
        """It still wants tokens."""
        return self.finish_reason is None

    def take(self, token_id: int, step_id: int, eos_token_ids: frozenset[int]) -> None:
        """Take in the token that a step chose for this row."""
        sampling = self.request.sampling
        if token_id in eos_token_ids and not sampling.ignore_eos:
            self.finish_reason = FinishReason.STOP
            self.rest = self.output.finish()
            return
        text = self.output.push(token_id)
        self.num_generated += 1
        if self.output.stopped:
            self.finish_reason = FinishReason.STOP
        elif self.num_generated >= self.most_tokens:
            self.finish_reason = FinishReason.LENGTH
            text += self.output.finish()
        self.undelivered.append(
            Token(
                request_id=self.request_id,
                index=self.num_generated - 1,
                step_id=step_id,
                token_id=token_id,
                text=text,
            )
        )

    def take_undelivered(self) -> list[Token]:
        """Tokens that whoever asked has not got yet."""
        tokens, self.undelivered = self.undelivered, []
        return tokens

    def ended(self) -> Ended:
        """To be told once."""
        assert self.finish_reason is not None
        self.told = True
        return Ended(request_id=self.request_id, reason=self.finish_reason, text=self.rest)


@dataclass
class StepEnd:
    """What a step led to, for those who asked."""

    tokens: list[Token] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    finished_ids: list[str] = field(default_factory=list)

    def tell(self, batch: list[Row]) -> None:
        """A request alone gets its token at once. A static batch gets all at its end, when the
        longest row is done; only who went away is told earlier."""
        over = not any(row.live for row in batch)
        for row in batch:
            if row.told:
                continue
            if over or not row.static:
                self.tokens += row.take_undelivered()
            if over:
                self.finished_ids.append(row.request_id)
            if over or row.finish_reason is FinishReason.ABORT:
                self.ended.append(row.ended())


class Workload:
    """The waiting queue and the batch that runs. One thread steps, another adds and aborts."""

    def __init__(self, *, batch_size: int, max_model_len: int) -> None:
        self.batch_size = batch_size
        self.max_model_len = max_model_len
        self._waiting: deque[Row] = deque()
        self._batch: list[Row] = []
        self._stepping = False
        self._closed = False
        self._changed = threading.Condition()

    def add(self, row: Row) -> None:
        with self._changed:
            self._waiting.append(row)
            self._changed.notify_all()

    def abort(self, request_id: str) -> Ended | None:
        """End a request: now, and then it is told by the caller; or, when a step is under way with
        it, at the end of that step."""
        with self._changed:
            row = self._find(request_id)
            if row is None or row.told:
                return None
            row.finish_reason, row.rest, row.undelivered = FinishReason.ABORT, "", []
            if row in self._waiting:
                self._waiting.remove(row)
            elif self._stepping:
                return None
            return row.ended()

    def close(self) -> None:
        """The server has gone: nothing more is computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_for_work(self) -> bool:
        """Block until a request waits. False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            return not self._closed

    def next_batch(self) -> list[Row]:
        """The first of the queue; if it asks for a static batch, those that can share it as well."""
        with self._changed:
            if self._waiting:
                self._batch = [self._waiting.popleft()]
                if self._batch[0].static:
                    self._fill_batch()
            return list(self._batch)

    def begin_step(self) -> list[str]:
        """The batch goes into the model. Who still waits, in order."""
        with self._changed:
            self._stepping = True
            return [row.request_id for row in self._waiting]

    @contextmanager
    def step_end(self) -> Iterator[StepEnd]:
        """The tokens are out: take them in, inside the ``with``, while nobody aborts."""
        with self._changed:
            yield StepEnd()
            self._stepping = False

    def end_batch(self) -> None:
        with self._changed:
            self._batch = []
            self._stepping = False

    # For the gate, which asks inside its own lock: these take none.

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def has_live_rows(self) -> bool:
        return any(row.live for row in self._batch)

    def has_work(self) -> bool:
        return self.has_waiting() or self.has_live_rows()

    # Inside the lock

    def _find(self, request_id: str) -> Row | None:
        rows = (row for row in (*self._waiting, *self._batch) if row.request_id == request_id)
        return next(rows, None)

    def _fill_batch(self) -> None:
        for row in list(self._waiting):
            if len(self._batch) == self.batch_size:
                return
            if self._can_share(row):
                self._waiting.remove(row)
                self._batch.append(row)

    def _can_share(self, row: Row) -> bool:
        """One call has one way of sampling, and the longest answer must fit behind the longest
        prompt, to which all prompts are padded."""
        rows = [*self._batch, row]
        longest = max(len(r.request.prompt_ids) for r in rows) + max(r.most_tokens for r in rows)
        same = _way_of_sampling(row) == _way_of_sampling(self._batch[0])
        return row.static and same and longest <= self.max_model_len


def _way_of_sampling(row: Row) -> tuple[float, float, int]:
    sampling = row.request.sampling
    if sampling.temperature == 0:  # greedy: the other two choose nothing
        return (0.0, 1.0, 0)
    return (sampling.temperature, sampling.top_p, sampling.top_k)
