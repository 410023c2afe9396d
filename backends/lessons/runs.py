"""Experiments under way: few on the server, one a visitor, each ended when nobody watches it. What the
engines of the last ones recorded is kept for a while."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable

from backends.errors import Overloaded, ServescopeError
from backends.lessons.ground import EngineTrace, Ground, Progress
from backends.lessons.outcome import Outcome

MOST_RUNS = 2
"""Each has an engine of its own, with its own copy of the weights."""
MOST_KEPT = 8
"""Runs that have ended and whose records can still be had; the oldest are forgotten first."""
RETRY_AFTER = 5.0

Experiment = Callable[[Ground], Awaitable[Outcome]]
MakeGround = Callable[[Callable[[Progress], None]], Ground]
"""Gets who is told how far the experiment is."""


class RunStopped(ServescopeError):
    """Somebody stopped the experiment."""

    status = 409
    code = "run_stopped"


class UnknownRun(ServescopeError):
    """No experiment of that id, or no longer."""

    status = 404
    code = "unknown_run"


class LessonRun:
    """One experiment under way."""

    def __init__(self, visitor: str, experiment: Experiment, make_ground: MakeGround) -> None:
        self.run_id = uuid.uuid4().hex
        self.visitor = visitor
        self.progress: Progress | None = None
        """The latest; who watches slowly misses those between."""
        self.traces: list[EngineTrace] = []
        """Of the engines that it ran on, once there is an outcome."""
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._measure(experiment, make_ground(self._report)))
        self.task.add_done_callback(lambda _: self._changed.set())

    async def events(self) -> AsyncGenerator[Progress | Outcome, None]:
        """Progress as it comes, then the outcome. Raises what the experiment raised; ``RunStopped``
        where it was stopped."""
        while not self.task.done():
            await self._changed.wait()
            self._changed.clear()
            if self.progress is not None and not self.task.done():
                yield self.progress
        if self.task.cancelled():
            raise RunStopped("The experiment was stopped.")
        yield self.task.result()

    async def stop(self) -> None:
        """End it and its engines, and return when they are gone. Idempotent."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _measure(self, experiment: Experiment, ground: Ground) -> Outcome:
        outcome = await experiment(ground)
        self.traces = ground.traces()
        return outcome

    def _report(self, progress: Progress) -> None:
        self.progress = progress
        self._changed.set()


class LessonRuns:
    """All of them. Used on the event loop only."""

    def __init__(self, make_ground: MakeGround, most: int = MOST_RUNS) -> None:
        self._make_ground = make_ground
        self._most = most
        self._runs: dict[str, LessonRun] = {}
        self._traces: dict[str, list[EngineTrace]] = {}
        """By an id that cannot be guessed, so that they are for whoever ran it; oldest first."""

    @property
    def num_running(self) -> int:
        return len(self._runs)

    def begin(self, experiment: Experiment, visitor: str) -> LessonRun:
        """Raises ``Overloaded`` while this visitor, or enough others, have one under way."""
        if any(run.visitor == visitor for run in self._runs.values()):
            raise Overloaded(
                "You have an experiment under way: stop it, or wait until it ends.", retry_after=RETRY_AFTER
            )
        if len(self._runs) >= self._most:
            raise Overloaded(
                f"{len(self._runs)} experiments are under way, and this server runs {self._most} at once.",
                retry_after=RETRY_AFTER,
            )
        run = LessonRun(visitor, experiment, self._make_ground)
        self._runs[run.run_id] = run
        run.task.add_done_callback(lambda _: self._end(run))
        return run

    def traces(self, run_id: str) -> list[EngineTrace]:
        """What the engines of a run recorded, in the order of their start. Raises ``UnknownRun``."""
        if run_id not in self._traces:
            raise UnknownRun(
                f"The records of this run are not here. Those of the last {MOST_KEPT} runs are kept: "
                "run the experiment again.",
                field="run_id",
            )
        return self._traces[run_id]

    async def stop(self, run_id: str) -> None:
        """Returns when its engines are gone. Raises ``UnknownRun``."""
        run = self._runs.get(run_id)
        if run is None:
            raise UnknownRun("No experiment of that id is under way.", field="run_id")
        await run.stop()

    async def close(self) -> None:
        """The server stops."""
        await asyncio.gather(*(run.stop() for run in list(self._runs.values())))

    def _end(self, run: LessonRun) -> None:
        del self._runs[run.run_id]
        if run.traces:
            self._traces[run.run_id] = run.traces
        while len(self._traces) > MOST_KEPT:
            del self._traces[next(iter(self._traces))]
