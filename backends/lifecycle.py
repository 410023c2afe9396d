"""Keeps one engine up: starts it once however many ask, restarts it with back-off, says so.

::

    idle ──ensure_ready──► starting ──► ready ◄──► paused
                              │           │ died
                              ▼           ▼
                         unavailable   crashed ──► restarting ──► ready
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from backends.errors import EngineDied, EngineUnavailable
from backends.recorder import Recorder
from backends.records import EngineState, State

FIRST_BACK_OFF = 0.5
LONGEST_BACK_OFF = 30.0
MOST_FAILED_STARTS = 5
"""Starts that may fail in a row before the engine is called unavailable."""
SETTLED_AFTER = 60.0
"""Seconds up after which earlier crashes are forgotten."""

Launch = Callable[[], Awaitable[None]]
"""Bring the engine up and return when it can take work. Raises ``EngineUnavailable`` when a
retry would not help, ``EngineDied`` when it might."""


class Lifecycle:
    """Lives on the event loop; ``died`` and ``progress`` may be called from other threads."""

    def __init__(self, backend: str, recorder: Recorder, launch: Launch) -> None:
        self._backend = backend
        self._recorder = recorder
        self._launch = launch
        self._coming_up: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failures = 0
        self._ready_since: float | None = None
        self._refusal: EngineUnavailable | None = None
        self._early_death: EngineDied | None = None
        """The process died between its ready-ack and our hearing of that."""
        self._stopped = False
        self._paused = False
        self._step_delay = 0.0
        self._say(State.IDLE)

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def is_up(self) -> bool:
        """The engine takes work (paused counts: requests wait for the next step)."""
        return self._ready_since is not None

    async def ensure_ready(self) -> None:
        """Return when the engine is up; concurrent calls share one start.

        Raises ``EngineUnavailable``, again at once to later callers: only ``restart`` tries once
        more; ``EngineDied`` when it is stopped meanwhile. A caller that is cancelled does not cancel
        the start; one whose start gives way to a restart waits for that.
        """
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        while not self.is_up:
            if self._refusal is not None:
                raise EngineUnavailable(self._refusal.message)
            if self._coming_up is None or self._coming_up.done():
                self._coming_up = asyncio.create_task(self._come_up(State.STARTING))
                self._coming_up.add_done_callback(_look_at_error)
            coming_up = self._coming_up
            await asyncio.wait({coming_up})
            if self._stopped:
                raise EngineDied(f"{self._backend} was stopped.")
            if not coming_up.cancelled():
                coming_up.result()  # raises why it did not come up

    def rule_out(self, error: EngineUnavailable) -> None:
        """It cannot run here, as is known before anybody asks."""
        self._refuse(error)

    def progress(self, fraction: float | None, sentence: str) -> None:
        """How far the start is. Ignored when the engine is not coming up."""
        if self._state.state in (State.STARTING, State.RESTARTING):
            self._say(self._state.state, sentence, fraction)

    def set_gate(self, *, paused: bool, step_delay: float) -> None:
        """The gate changed: an engine that is up is ``paused`` or ``ready``."""
        if (paused, step_delay) == (self._paused, self._step_delay):
            return
        self._paused, self._step_delay = paused, step_delay
        if self.is_up:
            self._say_up()

    def died(self, error: EngineDied) -> None:
        """The engine's process is gone. Thread-safe."""
        assert self._loop is not None, "an engine that was never started cannot die"
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is gone as well
            self._loop.call_soon_threadsafe(self._recover, error)

    async def restart(self, end_old: Callable[[], Awaitable[None]]) -> None:
        """End what runs and bring the engine up anew. Returns at once: ``state`` tells the rest."""
        await self._stop_coming_up()
        self._loop = asyncio.get_running_loop()
        self._ready_since = self._refusal = None
        self._say(State.RESTARTING)
        self._coming_up = asyncio.create_task(self._end_and_come_up(end_old))
        self._coming_up.add_done_callback(_look_at_error)

    async def stop(self, reason: str | None = None) -> None:
        """No start is under way any more, and none follows until somebody asks. With a reason, those
        who wait for a start ask at once; without, they are told that it was stopped."""
        self._stopped = reason is None
        await self._stop_coming_up()
        self._ready_since = None
        self._say(State.IDLE, reason)

    def _recover(self, error: EngineDied) -> None:
        if not self.is_up:  # it died while coming up: ``_come_up`` goes on
            self._early_death = error
            return
        assert self._ready_since is not None
        if time.monotonic() - self._ready_since > SETTLED_AFTER:
            self._failures = 0
        self._ready_since = None
        self._say(State.CRASHED, error.message)
        self._coming_up = asyncio.create_task(self._come_up_after_crash(error))
        self._coming_up.add_done_callback(_look_at_error)

    async def _come_up_after_crash(self, error: EngineDied) -> None:
        await self._back_off(error)
        await self._come_up(State.RESTARTING)

    async def _end_and_come_up(self, end_old: Callable[[], Awaitable[None]]) -> None:
        await end_old()
        await self._come_up(State.RESTARTING)

    async def _come_up(self, state: State) -> None:
        self._say(state)
        while True:
            self._early_death = None
            try:
                await self._launch()
                if self._early_death is not None:
                    raise self._early_death
            except EngineUnavailable as error:
                raise self._refuse(error) from None
            except OSError as error:  # no room for a process or a file
                raise self._refuse(EngineUnavailable(f"It could not be started: {error}")) from error
            except EngineDied as error:
                await self._back_off(error)
            else:
                self._ready_since = time.monotonic()
                self._say_up()
                return

    async def _back_off(self, error: EngineDied) -> None:
        self._failures += 1
        if self._failures >= MOST_FAILED_STARTS:
            self._failures = 0
            raise self._refuse(
                EngineUnavailable(f"{error.message} Given up after {MOST_FAILED_STARTS} tries.")
            )
        seconds = min(LONGEST_BACK_OFF, FIRST_BACK_OFF * 2 ** (self._failures - 1))
        self._say(State.RESTARTING, f"{error.message} Starting again in {seconds:g} s.")
        await asyncio.sleep(seconds)

    def _refuse(self, error: EngineUnavailable) -> EngineUnavailable:
        self._refusal = error
        self._say(State.UNAVAILABLE, error.message)
        return error

    async def _stop_coming_up(self) -> None:
        if self._coming_up is None:
            return
        self._coming_up.cancel()
        with contextlib.suppress(asyncio.CancelledError, EngineUnavailable):
            await self._coming_up
        self._coming_up = None

    def _say_up(self) -> None:
        self._say(State.PAUSED if self._paused else State.READY)

    def _say(self, state: State, reason: str | None = None, progress: float | None = None) -> None:
        self._state = EngineState(
            backend=self._backend,
            state=state,
            time=time.monotonic(),
            reason=reason,
            progress=progress,
            step_delay=self._step_delay,
        )
        self._recorder.append(self._state)


def _look_at_error(task: asyncio.Task[None]) -> None:
    """The state already tells of it; a restart that nobody awaits must not warn at exit."""
    if not task.cancelled():
        task.exception()
