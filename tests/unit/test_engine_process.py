"""A child engine comes up, talks, dies and is mourned; nothing outlives its parent."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from backends.engine_process import EngineProcess
from backends.errors import EngineDied, EngineUnavailable
from tests.unit.engine_children import Config, Say

PATIENCE = 30.0


class Nursery:
    """Starts children and keeps what they say."""

    def __init__(self) -> None:
        self.children: list[EngineProcess[Say]] = []
        self.messages: queue.Queue[Say] = queue.Queue()
        self.progress: list[tuple[float, str]] = []
        self.deaths: queue.Queue[EngineDied] = queue.Queue()

    def spawn(self, main: str = "echo", config: Config | None = None) -> EngineProcess[Say]:
        child: EngineProcess[Say] = EngineProcess(
            name="test engine",
            main=f"tests.unit.engine_children:{main}",
            config=config or Config(),
            message_type=Say,
            on_message=self.messages.put,
            on_progress=lambda fraction, sentence: self.progress.append((fraction, sentence)),
            on_death=self.deaths.put,
        )
        self.children.append(child)
        child.spawn()
        return child


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    for child in nursery.children:
        child.stop()
        assert not child.alive


def test_a_child_is_ready_after_its_ack_and_answers(nursery: Nursery) -> None:
    child = nursery.spawn(config=Config(greeting="hi"))
    child.ready.result(PATIENCE)
    child.send(Say("there"))
    assert nursery.messages.get(timeout=PATIENCE).word == "hi there"
    assert nursery.progress == [(0.5, "half way")]


def test_a_start_that_was_given_up_leaves_the_child_readable(nursery: Nursery) -> None:
    child = nursery.spawn(config=Config(greeting="hi"))
    assert child.ready.cancel()
    child.send(Say("there"))
    assert nursery.messages.get(timeout=PATIENCE).word == "hi there"


def test_the_handshake_proves_that_both_processes_read_one_clock(nursery: Nursery) -> None:
    child = nursery.spawn()
    child.ready.result(PATIENCE)
    assert child.clock_offset_bound is not None
    assert 0 < child.clock_offset_bound < PATIENCE


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda child: child.kill(), "ended by SIGKILL"),
        (lambda child: child.send(Say("exit")), "ended with exit code 7"),
        (lambda child: child.send(Say("raise")), "failed: ValueError: the weights are upside down"),
    ],
    ids=["killed", "exits", "raises"],
)
def test_a_death_is_told_once_with_its_reason(
    nursery: Nursery, end: Callable[[EngineProcess[Say]], None], reason: str
) -> None:
    child = nursery.spawn()
    child.ready.result(PATIENCE)
    end(child)
    assert reason in nursery.deaths.get(timeout=PATIENCE).message
    child.stop()
    assert nursery.deaths.empty()
    with pytest.raises(EngineDied):
        child.send(Say("anyone?"))


def test_a_child_that_dies_before_its_ack_fails_the_start(nursery: Nursery) -> None:
    child = nursery.spawn(main="never_ready")
    while not child.alive:
        time.sleep(0.01)
    child.kill()
    with pytest.raises(EngineDied, match="SIGKILL"):
        child.ready.result(PATIENCE)


def test_a_child_that_cannot_run_at_all_says_why(nursery: Nursery) -> None:
    with pytest.raises(EngineUnavailable, match="MambaForCausalLM"):
        nursery.spawn(main="refuse").ready.result(PATIENCE)


def test_a_stopped_child_is_gone_and_not_mourned(nursery: Nursery) -> None:
    child = nursery.spawn()
    child.ready.result(PATIENCE)
    child.stop()
    child.stop()
    assert not child.alive
    assert nursery.deaths.empty()


PARENT = """
import time
from tests.unit.engine_children import Config, Say
from backends.engine_process import EngineProcess

if __name__ == "__main__":
    unheard = lambda *said: None  # what another thread prints could stand in the line of the pid
    child = EngineProcess(
        name="orphan", main="tests.unit.engine_children:{main}", config=Config(), message_type=Say,
        on_message=unheard, on_progress=unheard, on_death=unheard, preload={preload})
    child.spawn()
    while not child.pid or child.clock_offset_bound is None:
        time.sleep(0.01)
    print(child.pid, flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("preload", [(), ("colorsys",)], ids=["spawned", "forked"])
@pytest.mark.parametrize("main", ["echo", "never_ready"])
def test_no_child_outlives_a_parent_that_was_killed(
    main: str, preload: tuple[str, ...], tmp_path: object
) -> None:
    script = f"{tmp_path}/parent.py"
    with open(script, "w") as file:
        file.write(PARENT.format(main=main, preload=preload))
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
        finally:
            parent.kill()  # leaving the block waits for its end
    deadline = time.monotonic() + PATIENCE
    while _runs(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
