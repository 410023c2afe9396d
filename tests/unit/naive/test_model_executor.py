"""Can results be swapped? On one shared queue they are; with a queue for every call they cannot be."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest

from backends.errors import EngineDied
from backends.naive.messages import ForwardBatch, RowResult, StepResult
from backends.naive.model_executor import ModelExecutor
from backends.naive.workload_manager import Sequence, WorkloadManager
from backends.records import FinishReason
from backends.settings import ResultRouting
from tests.unit.naive.sequences import sequence

PATIENCE = 10.0


class Worker:
    """Answers calls in the order they came, as the real one does, but when the test says so."""

    def __init__(self, routing: ResultRouting) -> None:
        self.calls: queue.Queue[ForwardBatch] = queue.Queue()
        self.first_may_wait = threading.Event()
        """Until it is set, the thread of the first call has sent it but does not wait for it yet."""
        self.executor = ModelExecutor(self._take, routing)

    def _take(self, call: msgspec.Struct) -> None:
        assert isinstance(call, ForwardBatch)
        self.calls.put(call)
        if call.call_id == 0:
            assert self.first_may_wait.wait(PATIENCE)

    def answer_next(self) -> None:
        self.executor.deliver(result_of(self.calls.get(timeout=PATIENCE)))


def result_of(call: ForwardBatch) -> StepResult:
    rows = [
        RowResult(
            sequence_id=item.sequence_id,
            num_tokens=4,
            token_id=0,
            is_eos=False,
            new_text=" x",
            text=item.text + " x",
            pending_ids=[],
        )
        for item in call.sequences
    ]
    return StepResult(
        call_id=call.call_id,
        start_time=0,
        duration=0,
        input_shape=[len(rows), 4],
        rows=rows,
        request_queue_depth=0,
    )


@contextmanager
def two_calls(worker: Worker) -> Iterator[tuple[Future[StepResult], Future[StepResult]]]:
    """The stream's loop has sent its call first; the whole answer's loop is first to wait."""
    with ThreadPoolExecutor(2) as threads:
        stream = threads.submit(worker.executor.execute_forward_batch, [sequence("stream")])
        wait_until(lambda: worker.calls.qsize() == 1)
        whole = threads.submit(lambda: next(worker.executor.execute_batch([sequence("whole")])))
        wait_until(lambda: worker.calls.qsize() == 2)
        yield stream, whole
        worker.first_may_wait.set()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ids(future: Future[StepResult]) -> list[str]:
    return [row.sequence_id for row in future.result(PATIENCE).rows]


def test_on_a_shared_result_queue_each_call_gets_the_others_result() -> None:
    worker = Worker(ResultRouting.SHARED)
    with two_calls(worker) as (stream, whole):
        worker.answer_next()
        assert ids(whole) == ["stream"]
        worker.first_may_wait.set()
        worker.answer_next()
        assert ids(stream) == ["whole"]
    assert worker.executor.num_misdelivered == 2


def test_with_a_queue_per_call_the_same_course_of_events_swaps_nothing() -> None:
    worker = Worker(ResultRouting.PER_CALL)
    with two_calls(worker) as (stream, whole):
        worker.answer_next()
        worker.answer_next()
        assert ids(whole) == ["whole"]
        worker.first_may_wait.set()
        assert ids(stream) == ["stream"]
    assert worker.executor.num_misdelivered == 0


@pytest.mark.parametrize("routing", list(ResultRouting))
def test_a_dead_worker_fails_every_call_that_waits(routing: ResultRouting) -> None:
    worker = Worker(routing)
    with two_calls(worker) as (stream, whole):
        worker.executor.fail(EngineDied("gone"))
        worker.first_may_wait.set()
        for call in (stream, whole):
            with pytest.raises(EngineDied, match="gone"):
                call.result(PATIENCE)


def test_a_result_that_comes_after_its_call_failed_is_nobodys() -> None:
    worker = Worker(ResultRouting.PER_CALL)
    with two_calls(worker) as (stream, whole):
        worker.executor.fail(EngineDied("gone"))
        worker.first_may_wait.set()
        assert stream.exception(PATIENCE)
        assert whole.exception(PATIENCE)
        worker.answer_next()
    assert worker.executor.result_queue_depth() == 0


def batches_of(sequences: list[Sequence]) -> Iterator[list[str]]:
    """The ids of each step of a batch of whole answers, answered as they come."""
    executor = ModelExecutor(lambda call: executor.deliver(result_of(call)))  # type: ignore[arg-type]
    for result in executor.execute_batch(sequences):
        yield [row.sequence_id for row in result.rows]


def test_whole_answers_keep_a_finished_row_in_the_batch_until_the_last_is_done() -> None:
    a, b = sequence("A"), sequence("B")
    steps = batches_of([a, b])
    assert next(steps) == ["A", "B"]
    a.finish_reason = FinishReason.STOP
    assert next(steps) == ["A", "B"]
    b.finish_reason = FinishReason.LENGTH
    assert next(steps, None) is None


def test_a_row_that_is_aborted_once_its_batch_is_made_is_in_that_step_and_in_no_later_one() -> None:
    manager = WorkloadManager()
    for each in (sequence("A"), sequence("B")):
        manager.add_request(each)
    steps = batches_of(manager.get_next_batch())
    assert not manager.drop("A"), "the worker is about to get it"
    assert next(steps) == ["A", "B"], "the batch that is waited for"
    manager.end_step(is_streaming=False)
    assert next(steps) == ["B"]


def test_a_batch_that_is_aborted_whole_once_it_is_made_still_has_its_step() -> None:
    manager = WorkloadManager()
    manager.add_request(sequence("A"))
    steps = batches_of(manager.get_next_batch())
    manager.drop("A")
    assert next(steps, None) == ["A"]
    manager.end_step(is_streaming=False)
    assert next(steps, None) is None
