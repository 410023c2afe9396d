"""Pause, resume, single step and slow motion: a gate that an engine asks before every step.

An engine asks only when it has something to compute, so a request that arrives while the gate
is closed joins at the next step, and one aborted meanwhile is gone by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backends.errors import NothingToStep


class Gate:
    """Thread-safe; several loops may ask, and a single step goes to exactly one of them."""

    def __init__(self, has_work: Callable[[], bool]) -> None:
        """``has_work``: is any request running or waiting? It is called with the gate's lock
        held: it must be quick and must not call the gate."""
        self._has_work = has_work
        self._changed = threading.Condition()
        self._paused = False
        self._closed = False
        self._permits = 0
        self._delay = 0.0

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def delay(self) -> float:
        """Slow motion: seconds waited before every step."""
        return self._delay

    def pause(self) -> None:
        """Hold the engine before its next step; a step under way is finished."""
        with self._changed:
            self._paused = True
            self._permits = 0
            self._changed.notify_all()

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._permits = 0
            self._changed.notify_all()

    def step(self) -> None:
        """Let exactly one step through. Presses made while a step runs are kept, each for one step.

        Raises ``NothingToStep`` when the gate is open, or when there is nothing to compute: a
        permit must not lie in wait for a request that comes later.
        """
        with self._changed:
            if not self._paused:
                raise NothingToStep("The engine is running. Pause it first, then step.")
            if not self._has_work():
                raise NothingToStep("There is nothing to compute: no request is running or waiting.")
            self._permits += 1
            self._changed.notify_all()

    def set_delay(self, seconds: float) -> None:
        """Slow motion for every step from now on; 0 is full speed."""
        with self._changed:
            self._delay = seconds
            self._changed.notify_all()

    def nudge(self) -> None:
        """Something that ``wanted`` looks at has changed."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Send everyone who waits away, for good."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def turn(self, wanted: Callable[[], bool]) -> Iterator[bool]:
        """Wait for permission, then run one step, bookkeeping included, inside the ``with``.

        Yields False when the gate was closed or ``wanted()`` turned false while waiting: the
        caller then has nothing to compute, and no permit was used. ``wanted`` is called like
        ``has_work``.
        """
        with self._changed:
            granted = self._wait(wanted)
        try:
            yield granted
        finally:
            with self._changed:
                if not self._has_work():
                    self._permits = 0

    def _wait(self, wanted: Callable[[], bool]) -> bool:
        asked_at = time.monotonic()
        while wanted() and not self._closed:
            if self._paused and self._permits:
                self._permits -= 1
                return True
            if self._paused:
                self._changed.wait()
                asked_at = time.monotonic()
                continue
            remaining = asked_at + self._delay - time.monotonic()
            if remaining <= 0:
                return True
            self._changed.wait(remaining)
        return False
