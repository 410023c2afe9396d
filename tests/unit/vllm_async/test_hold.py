"""Pause, single step and slow motion, as vLLM's scheduler asks for them."""

from __future__ import annotations

import time

import pytest

from backends.vllm_async import hold
from backends.vllm_async.hold import REST, Hold
from backends.worker_messages import SetGate, StepOnce


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only entry."""
    now = [100.0]
    monkeypatch.setattr(hold.time, "monotonic", lambda: now[0])
    return now


PAUSE = SetGate(paused=True, step_delay=0)
RESUME = SetGate(paused=False, step_delay=0)


def test_an_open_hold_never_waits() -> None:
    assert Hold().wait() == 0


def test_a_paused_one_always_does() -> None:
    held = Hold()
    held.work(PAUSE)
    assert [held.wait() for _ in range(3)] == [REST] * 3


def test_each_press_lets_one_step_through() -> None:
    held = Hold()
    held.work(PAUSE)
    for _ in range(2):
        held.work(StepOnce(time.monotonic()))
    assert [held.wait() for _ in range(3)] == [0, 0, REST]


def test_presses_that_were_not_used_end_with_the_pause() -> None:
    held = Hold()
    held.work(PAUSE)
    held.work(StepOnce(time.monotonic()))
    held.work(RESUME)
    held.work(PAUSE)
    assert held.wait() == REST


def test_a_press_ends_with_the_work_it_was_for(clock: list[float]) -> None:
    held = Hold()
    held.work(PAUSE)
    held.work(StepOnce(clock[0]))
    clock[0] += 1
    held.went_idle()
    assert held.wait() == REST


def test_a_press_that_was_on_its_way_when_the_work_ended_is_void(clock: list[float]) -> None:
    held = Hold()
    held.work(PAUSE)
    asked_at = clock[0]
    clock[0] += 1
    held.went_idle()
    held.work(StepOnce(asked_at))
    assert held.wait() == REST


def test_a_press_for_what_came_after_that_counts(clock: list[float]) -> None:
    held = Hold()
    held.work(PAUSE)
    held.went_idle()
    clock[0] += 1
    held.work(StepOnce(clock[0]))
    assert held.wait() == 0


def test_slow_motion_waits_its_time_before_every_step_in_short_rests(clock: list[float]) -> None:
    held = Hold()
    held.work(SetGate(paused=False, step_delay=0.05))
    waits = []
    while seconds := held.wait():
        waits.append(seconds)
        clock[0] += seconds
    assert waits == pytest.approx([0.02, 0.02, 0.01])
    assert held.wait() == REST, "the next step has a wait of its own"


def test_a_new_speed_counts_at_once(clock: list[float]) -> None:
    held = Hold()
    held.work(SetGate(paused=False, step_delay=60))
    assert held.wait() == REST
    held.work(SetGate(paused=False, step_delay=0))
    assert held.wait() == 0
