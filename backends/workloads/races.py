"""All races of a server: one at a time, a short line before it, and the last results."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

from backends.base import Backend
from backends.errors import Overloaded, ServescopeError
from backends.workloads.race import Race
from backends.workloads.workload import Workload

MOST_IN_LINE = 5
"""Races under way or waiting."""
MOST_KEPT = 16
"""Races that have ended and can still be looked at; the oldest are forgotten first."""
RETRY_AFTER = 30.0

logger = logging.getLogger(__name__)


class UnknownRace(ServescopeError):
    """There is no such race, or it ended so long ago that it is forgotten."""

    status = 404
    code = "unknown_race"


class Races:
    """Who races, who waits, and what came of it. Lives on the event loop."""

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}
        """By an id that cannot be guessed, oldest first."""
        self._tasks: dict[Race, asyncio.Task[None]] = {}
        """The line: races under way or waiting, in order."""
        self._visitor_of: dict[Race, str | None] = {}
        self._on_end: dict[Race, Callable[[], None]] = {}
        self._stage = asyncio.Lock()

    def begin(
        self,
        workload: Workload,
        entries: Sequence[tuple[Backend, str | None]],
        visitor: str | None,
        *,
        together: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ) -> str:
        """The id of a race that runs when its turn comes; ``on_end`` is called once it is over, whatever
        became of it. Raises ``Overloaded``."""
        if visitor in self._visitor_of.values():
            raise Overloaded(
                "A race of yours is waiting or under way: stop it first, or let it end.",
                retry_after=RETRY_AFTER,
            )
        if len(self._tasks) >= MOST_IN_LINE:
            raise Overloaded(
                f"{len(self._tasks)} races are waiting or under way, and {MOST_IN_LINE} is the limit. "
                f"Try again in {RETRY_AFTER:g} s.",
                retry_after=RETRY_AFTER,
            )
        race_id = secrets.token_urlsafe(16)
        race = self._races[race_id] = Race(workload, entries, together=together)
        self._visitor_of[race] = visitor
        self._on_end[race] = on_end
        race.place = len(self._tasks)
        self._tasks[race] = task = asyncio.create_task(self._run(race))
        task.add_done_callback(lambda task: self._leave(race, task))
        self._forget_old()
        return race_id

    def get(self, race_id: str) -> Race:
        """Raises ``UnknownRace``."""
        race = self._races.get(race_id)
        if race is None:
            raise UnknownRace("There is no such race here. The results of old ones are not kept.")
        return race

    async def stop(self, race: Race) -> None:
        """Return when its requests are aborted. Nothing happens to one that has ended."""
        task = self._tasks.get(race)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def abort_visitor(self, visitor: str) -> None:
        """Stop the race of a visitor who has left."""
        for race in [race for race, owner in self._visitor_of.items() if owner == visitor]:
            await self.stop(race)

    async def close(self) -> None:
        """The server stops."""
        for race in list(self._tasks):
            await self.stop(race)

    async def _run(self, race: Race) -> None:
        async with self._stage:
            await race.run()

    def _leave(self, race: Race, task: asyncio.Task[None]) -> None:
        """Its task is over, even if it was cancelled before it began."""
        if not task.cancelled() and task.exception() is not None:
            logger.error("A race has failed", exc_info=task.exception())
        if not race.has_ended:
            race.stop()
        del self._tasks[race], self._visitor_of[race]
        self._on_end.pop(race)()
        for place, other in enumerate(self._tasks):
            other.place = place
            other.touch()

    def _forget_old(self) -> None:
        ended = [race_id for race_id, race in self._races.items() if race.has_ended]
        for race_id in ended[: max(0, len(ended) - MOST_KEPT)]:
            del self._races[race_id]
