"""An engine is started once, comes back after a crash, and gives up in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from backends import lifecycle as lifecycle_module
from backends.errors import EngineDied, EngineUnavailable
from backends.lifecycle import MOST_FAILED_STARTS, Lifecycle
from backends.recorder import Recorder
from backends.records import EngineState, State

DIED = EngineDied("It died.")


class Engine:
    """Launches that succeed, or fail with what was put into ``errors``."""

    def __init__(self) -> None:
        self.recorder = Recorder("test")
        self.launches = 0
        self.errors: list[Exception] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.lifecycle = Lifecycle("test", self.recorder, self.launch)

    async def launch(self) -> None:
        self.launches += 1
        await self.may_finish.wait()
        if self.errors:
            raise self.errors.pop(0)

    @property
    def states(self) -> list[str]:
        """Every state there was, repetitions folded."""
        states = [
            entry.record.state.value
            for entry in self.recorder.since(0)
            if isinstance(entry.record, EngineState)
        ]
        return [state for index, state in enumerate(states) if index == 0 or states[index - 1] != state]

    async def reach(self, wanted: Callable[[EngineState], bool]) -> None:
        async with asyncio.timeout(10):
            while not wanted(self.lifecycle.state):
                await self.recorder.wait_for(self.recorder.version + 1)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle_module, "FIRST_BACK_OFF", 0.001)


@pytest.fixture
def engine() -> Engine:
    return Engine()


async def test_many_callers_share_one_start(engine: Engine) -> None:
    await asyncio.gather(*(engine.lifecycle.ensure_ready() for _ in range(5)))
    assert engine.launches == 1
    assert engine.states == ["idle", "starting", "ready"]


async def test_a_caller_that_leaves_does_not_end_the_start_of_the_others(engine: Engine) -> None:
    engine.may_finish.clear()
    leaving = asyncio.create_task(engine.lifecycle.ensure_ready())
    staying = asyncio.create_task(engine.lifecycle.ensure_ready())
    await engine.reach(lambda state: state.state is State.STARTING)
    leaving.cancel()
    engine.may_finish.set()
    await staying
    assert engine.launches == 1


async def test_progress_is_told_while_coming_up_only(engine: Engine) -> None:
    engine.may_finish.clear()
    start = asyncio.create_task(engine.lifecycle.ensure_ready())
    await engine.reach(lambda state: state.state is State.STARTING)
    engine.lifecycle.progress(0.4, "Loading")
    assert (engine.lifecycle.state.progress, engine.lifecycle.state.reason) == (0.4, "Loading")
    engine.may_finish.set()
    await start
    engine.lifecycle.progress(0.9, "Too late")
    assert engine.lifecycle.state.progress is None


async def test_a_crash_is_told_and_the_engine_comes_back(engine: Engine) -> None:
    await engine.lifecycle.ensure_ready()
    engine.lifecycle.died(DIED)
    await engine.reach(lambda _: engine.launches == 2 and engine.lifecycle.is_up)
    assert engine.states == ["idle", "starting", "ready", "crashed", "restarting", "ready"]
    assert engine.launches == 2


async def test_a_start_that_fails_is_tried_again(engine: Engine) -> None:
    engine.errors = [DIED, DIED]
    await engine.lifecycle.ensure_ready()
    assert engine.launches == 3
    assert engine.states == ["idle", "starting", "restarting", "ready"]


async def test_after_too_many_failures_it_gives_up_and_says_why(engine: Engine) -> None:
    engine.errors = [DIED] * MOST_FAILED_STARTS
    with pytest.raises(EngineUnavailable, match=r"It died\. Given up after 5 tries\."):
        await engine.lifecycle.ensure_ready()
    assert engine.lifecycle.state.state is State.UNAVAILABLE


async def test_what_cannot_run_is_not_tried_again_for_every_request(engine: Engine) -> None:
    engine.errors = [EngineUnavailable("MambaForCausalLM keeps a state.")]
    for _ in range(3):
        with pytest.raises(EngineUnavailable, match="Mamba"):
            await engine.lifecycle.ensure_ready()
    assert engine.launches == 1


async def test_a_restart_tries_once_more(engine: Engine) -> None:
    engine.errors = [EngineUnavailable("no")]
    with pytest.raises(EngineUnavailable):
        await engine.lifecycle.ensure_ready()
    ended = asyncio.Event()

    async def end_old() -> None:
        ended.set()

    await engine.lifecycle.restart(end_old)
    await engine.lifecycle.ensure_ready()
    assert ended.is_set()
    assert engine.lifecycle.state.state is State.READY


async def test_the_gate_makes_ready_paused_and_back_and_survives_a_crash(engine: Engine) -> None:
    await engine.lifecycle.ensure_ready()
    engine.lifecycle.set_gate(paused=True, step_delay=2.0)
    assert (engine.lifecycle.state.state, engine.lifecycle.state.step_delay) == (State.PAUSED, 2.0)
    engine.lifecycle.died(DIED)
    await engine.reach(lambda _: engine.launches == 2 and engine.lifecycle.is_up)
    assert engine.lifecycle.state.state is State.PAUSED
    engine.lifecycle.set_gate(paused=False, step_delay=0.0)
    assert engine.lifecycle.state.state is State.READY


async def test_stopping_ends_a_start_under_way(engine: Engine) -> None:
    engine.may_finish.clear()
    start = asyncio.create_task(engine.lifecycle.ensure_ready())
    await engine.reach(lambda state: state.state is State.STARTING)
    await engine.lifecycle.stop()
    with pytest.raises(EngineDied, match="test was stopped"):
        await start
    assert engine.lifecycle.state.state is State.IDLE


async def end_nothing() -> None:
    """There is no old process."""


async def test_who_waits_for_a_start_gets_the_restarted_engine(engine: Engine) -> None:
    engine.may_finish.clear()
    start = asyncio.create_task(engine.lifecycle.ensure_ready())
    await engine.reach(lambda state: state.state is State.STARTING)
    await engine.lifecycle.restart(end_nothing)
    engine.may_finish.set()
    await start
    assert engine.lifecycle.state.state is State.READY


async def test_who_waits_for_a_start_asks_again_when_it_has_to_make_way(engine: Engine) -> None:
    engine.may_finish.clear()
    start = asyncio.create_task(engine.lifecycle.ensure_ready())
    await engine.reach(lambda state: state.state is State.STARTING)
    await engine.lifecycle.stop("Stopped to make room for another.")
    engine.may_finish.set()
    await start
    assert engine.lifecycle.is_up


async def test_a_death_between_the_ready_ack_and_our_hearing_of_it_is_not_missed(engine: Engine) -> None:
    async def launch() -> None:
        await engine.launch()
        if engine.launches == 1:
            lifecycle.died(DIED)
            await asyncio.sleep(0)  # it is heard of before the launch returns

    lifecycle = Lifecycle("test", engine.recorder, launch)
    await lifecycle.ensure_ready()
    assert engine.launches == 2
    assert lifecycle.state.state is State.READY


async def test_a_machine_without_room_for_a_process_is_told_in_words(engine: Engine) -> None:
    engine.errors = [OSError(28, "No space left on device")]
    with pytest.raises(EngineUnavailable, match=r"could not be started: .* No space left on device"):
        await engine.lifecycle.ensure_ready()
    assert engine.lifecycle.state.state is State.UNAVAILABLE
