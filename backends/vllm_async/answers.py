"""One request in the vLLM worker: what ``AsyncLLM`` says of its text, and the tap of its steps.

The text comes out of vLLM's output processor, the step that chose each token and the moment it did
from the tap; they travel by different ways. A token is passed on once both are known, and the end
of a request once it has left the scheduler, so that the records tell all before the answer does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from backends.base import SamplingParams
from backends.records import AnyRecord, FinishReason, TokenEmitted
from backends.worker_messages import Ended, Token

Send = Callable[[list[AnyRecord], list[Token], list[Ended]], None]


@dataclass(frozen=True)
class Choice:
    """A token as vLLM's output processor tells it."""

    token_id: int
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Chosen:
    """Which step chose a token, and when it was done."""

    step_id: int | None
    time: float


class Answer:
    """Joins the two. Owned by the worker's event loop."""

    def __init__(self, request_id: str, sampling: SamplingParams, send: Send, *, with_tap: bool) -> None:
        self.request_id = request_id
        self.sampling = sampling
        self.is_seen = not with_tap
        """It has reached the scheduler, so it can be taken back there."""
        self.is_unwanted = False
        """Whoever asked has gone."""
        self._send = send
        self._with_tap = with_tap
        self._choices: deque[Choice] = deque()
        self._chosen: deque[Chosen] = deque()
        self._num_sent = 0
        self._not_before = 0.0
        """When a blocking call came back."""
        self._is_gone = not with_tap
        self._end: Ended | None = None

    # From AsyncLLM

    def add(self, choices: list[Choice], *, told_late: bool = False) -> None:
        """Tokens with their text. ``told_late``: a blocking call gives all of them at its end, which is
        when they reach whoever asked."""
        now = time.monotonic()
        self._choices.extend(choices)
        if not self._with_tap:
            self._chosen.extend(Chosen(None, now) for _ in choices)
        elif told_late:
            self._not_before = now
        self._flush()

    def end(self, reason: FinishReason, text: str = "") -> None:
        """No more tokens come. ``text`` was held back as the possible start of a stop string."""
        self._end = Ended(request_id=self.request_id, reason=reason, text=text)
        self._flush()

    def refuse(self, sentence: str) -> None:
        """vLLM did not take it: the scheduler never hears of it."""
        self._end = Ended(request_id=self.request_id, reason=FinishReason.ERROR, refusal=sentence)
        self._is_gone = True
        self._flush()

    def withdraw(self) -> None:
        """Whoever asked has gone before the scheduler heard of it."""
        self._end = Ended(request_id=self.request_id, reason=FinishReason.ABORT)
        self._is_gone = True
        self._flush()

    # From the tap

    def chose(self, chosen: Chosen, count: int) -> None:
        self._chosen.extend([chosen] * count)
        self._flush()

    def left(self) -> None:
        """It has left the scheduler."""
        self._is_gone = True
        self._flush()

    def go_on_without_tap(self) -> None:
        """Nothing more comes from there."""
        self._with_tap = False
        self.is_seen = self._is_gone = True
        missing = len(self._choices) - len(self._chosen)
        self._chosen.extend(Chosen(None, time.monotonic()) for _ in range(missing))
        self._flush()

    @property
    def is_done(self) -> bool:
        return self._end is not None and self._is_gone and not self._choices

    def _flush(self) -> None:
        records: list[AnyRecord] = []
        tokens: list[Token] = []
        while self._choices and self._chosen:
            choice, chosen = self._choices.popleft(), self._chosen.popleft()
            index, self._num_sent = self._num_sent, self._num_sent + 1
            records.append(
                TokenEmitted(
                    request_id=self.request_id,
                    index=index,
                    step_id=chosen.step_id,
                    time=max(chosen.time, self._not_before),
                )
            )
            tokens.append(
                Token(
                    request_id=self.request_id,
                    index=index,
                    step_id=chosen.step_id,
                    token_id=choice.token_id,
                    text=choice.text,
                    logprob=choice.logprob,
                    top_logprobs=choice.top_logprobs,
                )
            )
        ended = [self._end] if self._end is not None and self.is_done else []
        if tokens or ended:
            self._send(records, tokens, ended)
