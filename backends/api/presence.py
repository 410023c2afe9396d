"""Who is there: a visitor is present while a WebSocket of theirs is open."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from backends.api.disconnect import cancel

GRACE = 2.0
"""Seconds in which a visitor who has lost the connection, or changed the engine, can come back."""
GOING_AWAY = 1001
"""The close code of a browser whose page was closed or left: nobody comes back."""


class WorksForVisitors(Protocol):
    async def abort_visitor(self, visitor: str) -> None: ...


class Presence:
    """Aborts what was under way for a visitor who has left and not come back within the grace."""

    def __init__(self, *workers: WorksForVisitors, grace: float = GRACE) -> None:
        """Told one after the other: what sends requests comes before what serves them."""
        self._workers = workers
        self._grace = grace
        self._num_open: Counter[str] = Counter()
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def enter(self, visitor: str) -> None:
        self._num_open[visitor] += 1
        leaving = self._leaving.pop(visitor, None)
        if leaving is not None:
            leaving.cancel()

    def leave(self, visitor: str, code: int | None) -> None:
        """One socket of this visitor has closed, with this code; the last one counts."""
        self._num_open[visitor] -= 1
        if self._num_open[visitor] == 0:
            del self._num_open[visitor]
            self._leaving[visitor] = asyncio.create_task(
                self._abort_after(0 if code == GOING_AWAY else self._grace, visitor)
            )

    async def close(self) -> None:
        """The server stops, and its engines with it: nothing is left to abort."""
        await cancel(*self._leaving.values())

    async def _abort_after(self, seconds: float, visitor: str) -> None:
        await asyncio.sleep(seconds)
        del self._leaving[visitor]
        for worker in self._workers:
            await worker.abort_visitor(visitor)
