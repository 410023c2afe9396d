"""Who is in the batch: the streaming pool is refilled at every step, the other never midway."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from backends.naive.workload_manager import Sequence, WorkloadManager
from backends.records import FinishReason
from tests.unit.naive.sequences import names, sequence


def streams(*letters: str, batch_size: int = 3) -> tuple[WorkloadManager, dict[str, Sequence]]:
    manager = WorkloadManager(batch_size)
    sequences = {letter: sequence(letter) for letter in letters}
    for item in sequences.values():
        manager.add_streaming_request(item)
    return manager, sequences


def whole_answers(*letters: str, batch_size: int = 3) -> tuple[WorkloadManager, dict[str, Sequence]]:
    manager = WorkloadManager(batch_size)
    sequences = {letter: sequence(letter) for letter in letters}
    for item in sequences.values():
        manager.add_request(item)
    return manager, sequences


def step(manager: WorkloadManager, *, is_streaming: bool, done: tuple[Sequence, ...] = ()) -> str:
    """Run one step in which ``done`` end, and return who was in it."""
    batch = manager.get_next_batch(is_streaming)
    for item in done:
        item.finish_reason = FinishReason.LENGTH
    manager.end_step(is_streaming)
    return names(batch)


def test_a_leaves_and_d_enters_in_the_next_step() -> None:
    manager, sequences = streams("A", "B", "C", "D", "E")
    assert step(manager, is_streaming=True, done=(sequences["A"],)) == "A B C"
    assert step(manager, is_streaming=True) == "B C D"
    assert step(manager, is_streaming=True, done=(sequences["B"], sequences["C"])) == "B C D"
    assert step(manager, is_streaming=True) == "D E"


def test_a_batch_of_whole_answers_stays_until_all_of_it_is_done() -> None:
    manager, sequences = whole_answers("A", "B", "C", "D", "E")
    assert step(manager, is_streaming=False, done=(sequences["A"],)) == "A B C"
    assert step(manager, is_streaming=False, done=(sequences["C"],)) == "A B C"
    assert step(manager, is_streaming=False, done=(sequences["B"],)) == "A B C"
    assert step(manager, is_streaming=False) == "D E"


def test_whole_answers_leave_together_when_the_longest_is_done() -> None:
    manager, sequences = whole_answers("A", "B")
    manager.get_next_batch()
    sequences["A"].finish_reason = FinishReason.STOP
    assert manager.end_step(is_streaming=False) == ([], [])
    manager.get_next_batch()
    sequences["B"].finish_reason = FinishReason.LENGTH
    leaving, aborted = manager.end_step(is_streaming=False)
    assert (names(leaving), names(aborted)) == ("A B", "")


def test_the_pools_do_not_touch_each_other() -> None:
    manager, _ = streams("A", "B")
    manager.add_request(sequence("X"))
    assert step(manager, is_streaming=False) == "X"
    assert step(manager, is_streaming=True) == "A B"
    assert manager.depths() == {"incoming_queue": 0, "incoming_streaming_queue": 0}


@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole answer"])
def test_a_sequence_dropped_while_it_waits_never_enters(is_streaming: bool) -> None:
    manager, _ = (streams if is_streaming else whole_answers)("A", "B", "C", "D")
    assert manager.drop("B")
    assert step(manager, is_streaming=is_streaming) == "A C D"


@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole answer"])
def test_a_sequence_dropped_between_two_steps_is_gone_at_once(is_streaming: bool) -> None:
    manager, _ = (streams if is_streaming else whole_answers)("A", "B", "C")
    step(manager, is_streaming=is_streaming)
    assert manager.drop("B")
    assert step(manager, is_streaming=is_streaming) == "A C"


@pytest.mark.parametrize("is_streaming", [True, False], ids=["stream", "whole answer"])
def test_a_sequence_dropped_during_a_step_leaves_at_its_end(is_streaming: bool) -> None:
    manager, _ = (streams if is_streaming else whole_answers)("A", "B", "C")
    manager.get_next_batch(is_streaming)
    assert not manager.drop("B")
    leaving, aborted = manager.end_step(is_streaming)
    assert (names(leaving), names(aborted)) == ("", "B")
    assert step(manager, is_streaming=is_streaming) == "A C"


def test_dropping_the_last_unfinished_whole_answer_frees_its_batch() -> None:
    manager, sequences = whole_answers("A", "B", "C", batch_size=2)
    step(manager, is_streaming=False, done=(sequences["A"],))
    manager.get_next_batch()
    manager.drop("B")
    leaving, _ = manager.end_step(is_streaming=False)
    assert names(leaving) == "A"
    assert step(manager, is_streaming=False) == "C"


def test_dropping_whom_nobody_knows_is_no_matter() -> None:
    assert WorkloadManager().drop("nobody")


def test_a_loop_wakes_up_for_its_own_pool_only() -> None:
    manager = WorkloadManager()
    with ThreadPoolExecutor(1) as threads:
        woken = threads.submit(manager.wait_for_work, is_streaming=True)
        manager.add_request(sequence("X"))
        assert not woken.done()
        manager.add_streaming_request(sequence("A"))
        assert woken.result(10)


def test_a_closed_manager_sends_its_loops_home() -> None:
    manager = WorkloadManager()
    with ThreadPoolExecutor(1) as threads:
        woken = threads.submit(manager.wait_for_work, is_streaming=True)
        manager.close()
        assert not woken.result(10)


def test_a_batch_without_places_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size = 0"):
        WorkloadManager(0)
