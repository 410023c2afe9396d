"""Asks the worker and waits for its results.

Two threads wait here: one runs streams step by step (``execute_forward_batch``), the other whole
answers (``execute_batch``). In the design that this follows both call ``get()`` on one result
queue, and each takes what comes first::

    streaming loop ── execute_forward_batch ──┐                 ┌─► request queue ─► worker
                                              ├─ one queue ◄────┤
    whole-answer loop ── execute_batch ───────┘  whose is it?   └── result queue ◄── worker

``ResultRouting.SHARED`` keeps exactly that and counts what went to the wrong call;
``ResultRouting.PER_CALL`` gives every call a queue of its own.

With one queue all goes well as long as both threads come to wait in the order in which they sent. A thread
can lose the processor between the two; ``whole_answer_lag`` does that to the second one, for certain.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from backends.errors import EngineDied
from backends.naive.messages import ForwardBatch, SequenceInput, StepResult
from backends.naive.workload_manager import Sequence
from backends.settings import ResultRouting

ResultQueue = queue.Queue[StepResult | EngineDied]


class ModelExecutor:
    """Thread-safe. ``send`` puts a call on the worker's request queue; whoever reads the worker's
    messages gives them to ``deliver``."""

    def __init__(
        self,
        send: Callable[[msgspec.Struct], None],
        result_routing: ResultRouting = ResultRouting.PER_CALL,
        whole_answer_lag: float = 0.0,
    ) -> None:
        self._send = send
        self._routing = result_routing
        self._whole_answer_lag = whole_answer_lag
        self._call_ids = itertools.count()
        self._lock = threading.Lock()
        self._result_queue: ResultQueue = queue.Queue()
        self._queue_of_call: dict[int, ResultQueue] = {}
        self.num_misdelivered = 0
        """Results that reached a call other than their own."""

    def execute_forward_batch(self, sequences: list[Sequence], lag: float = 0.0) -> StepResult:
        """One step for ``sequences``. Waits for the result; raises ``EngineDied``.

        Under ``SHARED`` the result can be another call's: compare ids before you believe it.
        ``lag``: seconds between sending the call and waiting for its result.
        """
        call_id = next(self._call_ids)
        result = self._call(ForwardBatch(call_id, [_input(sequence) for sequence in sequences]), lag)
        if result.call_id != call_id:
            self.num_misdelivered += 1
        return result

    def execute_batch(self, sequences: list[Sequence]) -> Iterator[StepResult]:
        """Whole answers: the same batch, step after step, until the caller has marked every
        sequence done. Those done early are computed again and again, for nothing; only those that
        have left are not. Each ``next`` waits like ``execute_forward_batch``.
        """
        while not all(sequence.done or sequence.left for sequence in sequences):
            batch = [sequence for sequence in sequences if not sequence.left]
            yield self.execute_forward_batch(batch, self._whole_answer_lag)

    def deliver(self, result: StepResult) -> None:
        """A result of the worker arrived: put it where a call waits for it."""
        if self._routing is ResultRouting.SHARED:
            self._result_queue.put(result)
            return
        with self._lock:
            waiting = self._queue_of_call.get(result.call_id)
        if waiting is not None:  # else: the call was failed meanwhile
            waiting.put(result)

    def fail(self, error: EngineDied) -> None:
        """The worker is gone: every call that waits raises ``error``."""
        with self._lock:
            waiting = list(self._queue_of_call.values())
        for result_queue in waiting:
            result_queue.put(error)

    def reset(self) -> None:
        """A new worker is up: what is left of the old one's results is nobody's."""
        self._result_queue = queue.Queue()

    def result_queue_depth(self) -> int:
        """Results that nobody has taken yet."""
        with self._lock:
            queues = {id(q): q for q in (self._result_queue, *self._queue_of_call.values())}
        return sum(q.qsize() for q in queues.values())

    def _call(self, call: ForwardBatch, lag: float) -> StepResult:
        result_queue = self._result_queue if self._routing is ResultRouting.SHARED else queue.Queue()
        with self._lock:
            self._queue_of_call[call.call_id] = result_queue
        try:
            self._send(call)
            if lag:
                time.sleep(lag)
            result = result_queue.get()
        finally:
            with self._lock:
                del self._queue_of_call[call.call_id]
        if isinstance(result, EngineDied):
            raise result
        return result


def _input(sequence: Sequence) -> SequenceInput:
    return SequenceInput(
        sequence_id=sequence.sequence_id,
        text=sequence.text,
        pending_ids=sequence.pending_ids,
        temperature=sequence.stream.request.sampling.temperature,
    )
