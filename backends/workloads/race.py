"""A race: the same workload on one to four engines, one after another, so that they do not steal
from each other, or all at once, to see them do it.

    QUEUED ──its turn──► RUNNING ──every entry has had its turn──► DONE
       └──────stop, or its visitor has gone──────┴───────────────► STOPPED

An entry that cannot run is reported with its reason, and the others go on:

    WAITING ──► STARTING ──► RUNNING ──► DONE
       └───────────┴────────────┴──────► UNAVAILABLE, FAILED or STOPPED
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from backends.base import Backend
from backends.errors import EngineUnavailable, ServescopeError
from backends.recorder import RecordsDropped
from backends.records import EngineState
from backends.workloads.run import Run, run_on
from backends.workloads.summary import RaceResult, summary
from backends.workloads.workload import Planned, Workload, plan, warm_up

MOST_ENTRIES = 4
LONGEST_LEAVE = 3.0
"""Seconds that aborted requests may take to leave their engine: one step of it, unless it is paused."""
LONGEST_ENTRY = 15 * 60.0
"""Seconds that one engine may take to come up, and again to run: one that is paused takes for ever."""


class RaceState(StrEnum):
    QUEUED = "queued"
    """Another race is under way."""
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """By whoever started it, or because they have gone. What had ended keeps its result."""


class EntryState(StrEnum):
    WAITING = "waiting"
    """Its turn comes."""
    STARTING = "starting"
    """Its engine is coming up and warming up, or waits for the others to have done so."""
    RUNNING = "running"
    DONE = "done"
    """Every request has ended, be it with an error."""
    UNAVAILABLE = "unavailable"
    """Its engine cannot run here."""
    FAILED = "failed"
    """It took too long, or more was recorded than could be kept up with."""
    STOPPED = "stopped"


class EntryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one engine is. The last three are the engine's own state, while it starts or runs."""

    backend: str
    title: str
    mode: str | None
    state: EntryState
    reason: str | None
    num_ended: int
    num_requests: int
    has_result: bool
    engine: EngineState | None


class RaceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``version`` grows with every change."""

    version: int
    state: RaceState
    place: int
    """Races that come first."""
    together: bool
    """All engines at once, rather than one after another."""
    entries: list[EntryProgress]


class Entry:
    """One engine's turn."""

    def __init__(self, engine: Backend, mode: str | None, num_requests: int) -> None:
        self.engine = engine
        self.mode = mode
        self.num_requests = num_requests
        self.state = EntryState.WAITING
        self.reason: str | None = None
        self.num_ended = 0
        self.result: RaceResult | None = None
        self._run: Run | None = None

    def see(self, run: Run) -> None:
        """It has begun, or one more request has ended."""
        self._run = run
        self.state = EntryState.RUNNING
        self.num_ended = run.num_ended

    async def leave(self) -> None:
        """Wait until the engine has recorded the end of each of its requests, which are aborted."""
        if self._run is None:
            return
        with suppress(TimeoutError, RecordsDropped):
            async with asyncio.timeout(LONGEST_LEAVE):
                while self._run.in_flight:
                    await self.engine.recorder.wait_for(self._run.version + 1)
                    self._run.keep(self.engine.recorder.since(self._run.version))

    def end(self, state: EntryState, reason: str | None = None) -> None:
        """Its records become its result, as far as they go; they are not kept."""
        self.state, self.reason = state, reason
        if self._run is not None:
            with suppress(RecordsDropped):  # what the last of it was, where it did not run to its end
                self._run.keep(self.engine.recorder.since(self._run.version))
            self.result = summary(self._run)
            self._run = None

    def progress(self) -> EntryProgress:
        is_under_way = self.state in (EntryState.STARTING, EntryState.RUNNING)
        return EntryProgress(
            backend=self.engine.info.name,
            title=self.engine.info.title,
            mode=self.mode,
            state=self.state,
            reason=self.reason,
            num_ended=self.num_ended,
            num_requests=self.num_requests,
            has_result=self.result is not None,
            engine=self.engine.state if is_under_way else None,
        )


class Race:
    """One race, from its place in the line to its results."""

    def __init__(
        self, workload: Workload, entries: Sequence[tuple[Backend, str | None]], *, together: bool = False
    ) -> None:
        self.workload = workload
        self.together = together
        self.entries = [Entry(engine, mode, workload.students) for engine, mode in entries]
        self.state = RaceState.QUEUED
        self.place = 0
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self.state in (RaceState.DONE, RaceState.STOPPED)

    async def run(self) -> None:
        """Every entry in its turn. Cancelling it stops the race: its requests are aborted."""
        self.state = RaceState.RUNNING
        self.touch()
        planned = plan(self.workload)
        turns = [self.entries] if self.together else [[entry] for entry in self.entries]
        for turn in turns:
            await self._try_all(turn, lambda entry: self._warm_up(entry, planned[0]))
            ready = [entry for entry in turn if entry.state is EntryState.STARTING]
            await self._try_all(ready, lambda entry: self._run_entry(entry, planned))
        self.state = RaceState.DONE
        self.touch()

    def stop(self) -> None:
        """It will not go on."""
        for entry in self.entries:
            if entry.state is EntryState.WAITING:
                entry.end(EntryState.STOPPED)
        self.state = RaceState.STOPPED
        self.touch()

    def progress(self) -> RaceProgress:
        return RaceProgress(
            version=self._version,
            state=self.state,
            place=self.place,
            together=self.together,
            entries=[entry.progress() for entry in self.entries],
        )

    def touch(self) -> None:
        """Something has changed: wake those who wait for it."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_beyond(self, version: int) -> None:
        """Return once there has been a change after this version, or none can come."""
        while self._version <= version and not self.has_ended:
            await self._changed.wait()

    async def _try_all(
        self, entries: Sequence[Entry], work: Callable[[Entry], Coroutine[Any, Any, None]]
    ) -> None:
        async with asyncio.TaskGroup() as trying:
            for entry in entries:
                trying.create_task(self._try(entry, work(entry)))

    async def _try(self, entry: Entry, work: Coroutine[Any, Any, None]) -> None:
        """What goes wrong with one engine is that entry's end, and nobody else's."""
        watching = asyncio.create_task(self._watch(entry.engine))
        try:
            async with asyncio.timeout(LONGEST_ENTRY):
                await work
        except EngineUnavailable as error:
            entry.end(EntryState.UNAVAILABLE, error.message)
        except ServescopeError as error:  # it died while it was starting
            entry.end(EntryState.FAILED, error.message)
        except TimeoutError:
            entry.end(EntryState.FAILED, f"It was stopped after {LONGEST_ENTRY / 60:g} minutes.")
        except RecordsDropped as error:
            entry.end(EntryState.FAILED, f"More was recorded than could be kept: {error}.")
        except BaseException:
            try:
                await entry.leave()
            finally:
                entry.end(EntryState.STOPPED)
            raise
        finally:
            watching.cancel()
            self.touch()

    async def _warm_up(self, entry: Entry, planned: Planned) -> None:
        """The first steps of a process are no part of a race."""
        entry.state = EntryState.STARTING
        self.touch()
        await run_on(entry.engine, [warm_up(planned)], mode=entry.mode)

    async def _run_entry(self, entry: Entry, planned: Sequence[Planned]) -> None:
        def see(run: Run) -> None:
            entry.see(run)
            self.touch()

        salt = uuid.uuid4().hex  # nothing of an earlier run is found: each begins alike
        await run_on(entry.engine, planned, mode=entry.mode, cache_salt=salt, on_change=see)
        entry.end(EntryState.DONE)

    async def _watch(self, engine: Backend) -> None:
        """A change of the engine's state is a change of the race's."""
        async for entries in engine.recorder.follow(engine.recorder.version):
            if any(isinstance(entry.record, EngineState) for entry in entries):
                self.touch()
