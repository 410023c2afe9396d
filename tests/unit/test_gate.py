"""The gate: nobody computes while it is closed, and each press is one step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from backends.errors import NothingToStep
from backends.gate import Gate

PATIENCE = 10.0
"""Seconds after which a thread that should have ended is called stuck."""


class Loop:
    """A stand-in for an engine: takes turns until its work is done."""

    def __init__(self, work: int) -> None:
        self.left = work
        self.done = 0
        self.gate = Gate(has_work=lambda: self.left > 0)
        self.stepped = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while self.left:
            with self.gate.turn(lambda: self.left > 0) as granted:
                if not granted:
                    return
                self.left -= 1
                self.done += 1
            self.stepped.release()

    def wait_for_steps(self, count: int) -> None:
        for _ in range(count):
            assert self.stepped.acquire(timeout=PATIENCE), "no step happened"


@pytest.fixture
def loop_of() -> Iterator[Callable[[int], Loop]]:
    loops: list[Loop] = []

    def make(work: int) -> Loop:
        loops.append(Loop(work))
        return loops[-1]

    yield make
    for loop in loops:
        loop.gate.close()
        if loop.thread.ident:
            loop.thread.join(PATIENCE)
            assert not loop.thread.is_alive()


def test_an_open_gate_lets_every_step_through(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(5)
    loop.thread.start()
    loop.wait_for_steps(5)
    assert loop.done == 5


def test_each_press_is_exactly_one_step(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(10)
    loop.gate.pause()
    loop.thread.start()
    for presses in range(1, 4):
        loop.gate.step()
        loop.wait_for_steps(1)
        assert loop.done == presses
    assert not loop.stepped.acquire(timeout=0.05)


def test_presses_made_faster_than_steps_are_all_kept(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(10)
    loop.gate.pause()
    for _ in range(4):
        loop.gate.step()
    loop.thread.start()
    loop.wait_for_steps(4)
    assert not loop.stepped.acquire(timeout=0.05)
    assert loop.done == 4


def test_presses_left_over_when_the_work_ends_do_not_wait_for_the_next_request(
    loop_of: Callable[[int], Loop],
) -> None:
    loop = loop_of(1)
    loop.gate.pause()
    for _ in range(3):
        loop.gate.step()
    loop.thread.start()
    loop.wait_for_steps(1)
    loop.thread.join(PATIENCE)
    loop.left = 1
    late = threading.Thread(target=loop._run, daemon=True)
    late.start()
    assert not loop.stepped.acquire(timeout=0.05)
    loop.gate.close()
    late.join(PATIENCE)


def test_resume_lets_the_rest_through(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(3)
    loop.gate.pause()
    loop.thread.start()
    loop.gate.resume()
    loop.wait_for_steps(3)


def test_stepping_an_open_gate_is_refused(loop_of: Callable[[int], Loop]) -> None:
    with pytest.raises(NothingToStep, match="Pause it first"):
        loop_of(1).gate.step()


def test_stepping_an_idle_engine_is_refused() -> None:
    gate = Gate(has_work=lambda: False)
    gate.pause()
    with pytest.raises(NothingToStep, match="nothing to compute"):
        gate.step()


def test_a_loop_whose_work_vanished_while_held_is_sent_away_without_using_a_permit(
    loop_of: Callable[[int], Loop],
) -> None:
    loop = loop_of(1)
    loop.gate.pause()
    loop.thread.start()
    loop.left = 0
    loop.gate.nudge()
    loop.thread.join(PATIENCE)
    assert not loop.thread.is_alive()
    assert loop.done == 0


def test_a_single_step_goes_to_one_of_two_loops_that_share_a_gate(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(10)
    second = threading.Thread(target=loop._run, daemon=True)
    loop.gate.pause()
    loop.thread.start()
    second.start()
    loop.gate.step()
    loop.wait_for_steps(1)
    assert not loop.stepped.acquire(timeout=0.05)
    loop.gate.close()
    second.join(PATIENCE)


def test_slow_motion_is_interrupted_when_speed_comes_back(loop_of: Callable[[int], Loop]) -> None:
    loop = loop_of(1)
    loop.gate.set_delay(3600)
    loop.thread.start()
    assert not loop.stepped.acquire(timeout=0.05)
    loop.gate.set_delay(0)
    loop.wait_for_steps(1)
