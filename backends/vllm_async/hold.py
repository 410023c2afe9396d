"""Pause, single step and slow motion inside vLLM's scheduler.

vLLM has no single step. While the engine is held, the tap lets the scheduler run with a token
budget of 0: an empty step, so that new requests and aborts still get through. ``Gate`` cannot do
this, since it blocks its caller, and a blocked EngineCore hears nothing.
"""

from __future__ import annotations

import time
from collections import deque

from backends.worker_messages import SetGate, StepOnce

REST = 0.02
"""Longest wait before a held scheduler looks after requests again, in seconds."""


class Hold:
    """Owned by EngineCore's thread."""

    def __init__(self) -> None:
        self.paused = False
        self._delay = 0.0
        self._permits: deque[float] = deque()
        """When each single step was asked for."""
        self._asked_at: float | None = None
        self._idle_since = 0.0

    def work(self, message: SetGate | StepOnce) -> None:
        """Do what the server says."""
        match message:
            case SetGate(paused=paused, step_delay=step_delay):
                self._delay = step_delay
                if paused != self.paused:
                    self._permits.clear()
                self.paused = paused
                self._asked_at = None
            case StepOnce(asked_at):
                if asked_at > self._idle_since:  # or what it was asked for has ended meanwhile
                    self._permits.append(asked_at)

    def wait(self) -> float:
        """Seconds to wait before the next step at least; 0: go ahead, and a permit is used up."""
        if self.paused:
            if not self._permits:
                return REST
            self._permits.popleft()
            return 0
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        remaining = self._asked_at + self._delay - now
        if remaining > 0:
            return min(REST, remaining)
        self._asked_at = None
        return 0

    def went_idle(self) -> None:
        """All work that a step could have been asked for is gone."""
        self._idle_since = time.monotonic()
        self._permits.clear()
        self._asked_at = None
