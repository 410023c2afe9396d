"""Can results be swapped? On one shared queue they are; with a queue for every call they cannot be."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest

from backends.errors import EngineDied
from backends.naive.messages import ForwardBatch, RowResult, StepResult
from backends.naive.model_executor import ModelExecutor
from backends.naive.workload_manager import Sequence
from backends.records import FinishReason
from backends.settings import ResultRouting
from tests.unit.naive.sequences import sequence

PATIENCE = 10.0


class Worker:
    """A worker that answers when it is told to, in the order it is told."""

    def __init__(self, routing: ResultRouting) -> None:
        self.calls: queue.Queue[ForwardBatch] = queue.Queue()
        self.executor = ModelExecutor(self._take, routing)

    def _take(self, call: msgspec.Struct) -> None:
        assert isinstance(call, ForwardBatch)
        self.calls.put(call)

    def next_call(self) -> ForwardBatch:
        return self.calls.get(timeout=PATIENCE)

    def answer(self, call: ForwardBatch) -> None:
        self.executor.deliver(result_of(call))


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
def two_calls_waiting(worker: Worker) -> Iterator[tuple[Future[StepResult], Future[StepResult]]]:
    """A stream's step waits first, then a whole answer's: both calls are with the worker."""
    with ThreadPoolExecutor(2) as threads:
        stream = threads.submit(worker.executor.execute_forward_batch, [sequence("stream")])
        wait_until_waiting(worker, 1)
        whole = threads.submit(lambda: next(worker.executor.execute_batch([sequence("whole")])))
        wait_until_waiting(worker, 2)
        yield stream, whole


def wait_until_waiting(worker: Worker, count: int) -> None:
    """Both threads block in ``get()``, the longest waiting one first in line."""
    reached = threading.Event()
    for _ in range(2000):
        getters = sum(
            len(q.not_empty._waiters)  # type: ignore[attr-defined]
            for q in {id(q): q for q in worker.executor._queue_of_call.values()}.values()
        )
        if getters == count:
            return
        reached.wait(0.005)
    pytest.fail("the calls never waited")


def ids(future: Future[StepResult]) -> list[str]:
    return [row.sequence_id for row in future.result(PATIENCE).rows]


def test_on_a_shared_result_queue_each_call_gets_the_others_result() -> None:
    worker = Worker(ResultRouting.SHARED)
    with two_calls_waiting(worker) as (stream, whole):
        first, second = worker.next_call(), worker.next_call()
        worker.answer(second)
        worker.answer(first)
        assert ids(stream) == ["whole"]
        assert ids(whole) == ["stream"]
    assert worker.executor.num_misdelivered == 2


def test_with_a_queue_per_call_the_same_order_of_answers_swaps_nothing() -> None:
    worker = Worker(ResultRouting.PER_CALL)
    with two_calls_waiting(worker) as (stream, whole):
        first, second = worker.next_call(), worker.next_call()
        worker.answer(second)
        worker.answer(first)
        assert ids(stream) == ["stream"]
        assert ids(whole) == ["whole"]
    assert worker.executor.num_misdelivered == 0


@pytest.mark.parametrize("routing", list(ResultRouting))
def test_a_dead_worker_fails_every_call_that_waits(routing: ResultRouting) -> None:
    worker = Worker(routing)
    with two_calls_waiting(worker) as (stream, whole):
        worker.executor.fail(EngineDied("gone"))
        for call in (stream, whole):
            with pytest.raises(EngineDied, match="gone"):
                call.result(PATIENCE)


def test_a_result_that_comes_after_its_call_failed_is_nobodys() -> None:
    worker = Worker(ResultRouting.PER_CALL)
    with two_calls_waiting(worker) as (stream, _):
        call = worker.next_call()
        worker.executor.fail(EngineDied("gone"))
        assert stream.exception(PATIENCE)
    worker.answer(call)
    assert worker.executor.result_queue_depth() == 0


def batches_of(worker: Worker, sequences: list[Sequence]) -> Iterator[list[str]]:
    """The ids of each step of a batch of whole answers, answered as they come."""
    worker.executor._send = lambda call: worker.answer(call)  # type: ignore[assignment, arg-type]
    for result in worker.executor.execute_batch(sequences):
        yield [row.sequence_id for row in result.rows]


def test_whole_answers_keep_a_finished_row_in_the_batch_until_the_last_is_done() -> None:
    a, b = sequence("A"), sequence("B")
    steps = batches_of(Worker(ResultRouting.PER_CALL), [a, b])
    assert next(steps) == ["A", "B"]
    a.finish_reason = FinishReason.STOP
    assert next(steps) == ["A", "B"]
    b.finish_reason = FinishReason.LENGTH
    assert next(steps, None) is None


def test_an_aborted_row_is_left_out_of_the_next_step() -> None:
    a, b = sequence("A"), sequence("B")
    steps = batches_of(Worker(ResultRouting.PER_CALL), [a, b])
    assert next(steps) == ["A", "B"]
    a.aborted = True
    assert next(steps) == ["B"]
