"""The naive engine: two loops in the web process, one worker process, no KV cache.

The way of a token: worker → result queue → ``requests_processing_loop`` (a thread) →
``asyncio.run_coroutine_threadsafe`` → the request's own ``asyncio.Queue`` → whoever asked.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from backends.base import BackendInfo, ControlAction, TokenChunk
from backends.engine_child import WorkerReady
from backends.errors import EngineDied, MisdeliveredResult, ServescopeError
from backends.hosted import TORCH_MODULES, HostedEngine
from backends.models import PreparedModel
from backends.naive.messages import RowResult, StepResult, WorkerConfig
from backends.naive.model_executor import ModelExecutor
from backends.naive.workload_manager import EmittedToken, Sequence, WorkloadManager
from backends.records import (
    EngineConfig,
    Exposure,
    FinishReason,
    Phase,
    QueueSample,
    ScheduledRow,
    StepRecord,
    TokenEmitted,
)
from backends.settings import ResultRouting, Settings
from backends.streams import RequestStream

NOTES = {
    "kv": "There is no KV cache: every step computes all tokens of every row again. "
    "ΣL² sums the squared lengths of the rows, ΣL the lengths.",
    "latency": "From the engine's stamps: TTFT = first token − arrival, ITL = gap between two tokens.",
}


class NaiveEngine(HostedEngine):
    """Implements ``base.Backend``."""

    info = BackendInfo(
        name="naive",
        title="naive",
        supported=frozenset({"ignore_eos"}),
        controls=frozenset(ControlAction),
    )
    measured: ClassVar = {
        "batch": Exposure.MEASURED,
        "kv": Exposure.DERIVED,
        "queues": Exposure.MEASURED,
        "latency": Exposure.DERIVED,
    }
    notes = NOTES
    message_type = StepResult
    main = "backends.naive.model_worker:main"
    preload = TORCH_MODULES

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.workload_manager = WorkloadManager(settings.batch_size)
        self.executor = ModelExecutor(
            self.send, ResultRouting(settings.result_routing), whole_answer_lag=settings.result_lag
        )
        self._step_ids = itertools.count()
        self._loops = [
            threading.Thread(target=self.requests_processing_loop, name="naive-streams", daemon=True),
            threading.Thread(target=self.whole_answers_loop, name="naive-whole-answers", daemon=True),
        ]

    # The two loops

    def requests_processing_loop(self) -> None:
        """Streams: a new batch for every step, so a free place is taken at the next one."""
        while self.workload_manager.wait_for_work(is_streaming=True):
            with self._turn(is_streaming=True) as batch:
                if batch:
                    self._step(batch, self.executor.execute_forward_batch, is_streaming=True)

    def whole_answers_loop(self) -> None:
        """Whole answers: one batch until all of it is done, and only then the next one."""
        current: list[Sequence] = []
        steps: Iterator[StepResult] = iter(())
        while self.workload_manager.wait_for_work(is_streaming=False):
            with self._turn(is_streaming=False) as batch:
                if not set(batch) <= set(current):  # nobody joins a static batch: this is a new one
                    current, steps = batch, self.executor.execute_batch(batch)
                if batch:
                    self._step(batch, partial(_next_of, steps), is_streaming=False)

    @contextmanager
    def _turn(self, is_streaming: bool) -> Iterator[list[Sequence]]:
        """Wait at the gate, then compose the batch: who came while it was closed is in."""
        with self.gate.turn(lambda: self.workload_manager.has_work(is_streaming)) as granted:
            yield self.workload_manager.get_next_batch(is_streaming) if granted else []

    def _step(
        self,
        batch: list[Sequence],
        execute: Callable[[list[Sequence]], StepResult],
        *,
        is_streaming: bool,
    ) -> None:
        """One step: execute, update, record."""
        waiting_ids = self.workload_manager.waiting_ids(is_streaming)
        try:
            result = execute(batch)
            _check_whose(result, batch)
        except (EngineDied, MisdeliveredResult) as error:
            self._fail(batch, error, is_streaming)
            return
        rows = [_row(sequence, row) for sequence, row in zip(batch, result.rows, strict=True)]
        admitted_ids = [sequence.sequence_id for sequence in batch if sequence.num_steps == 0]
        sample = self._sample_queues(batch, result)
        step_id = next(self._step_ids)
        for sequence, row in zip(batch, result.rows, strict=True):
            self._update(sequence, row, step_id)
        leaving, aborted = self.workload_manager.end_step(is_streaming)
        step = StepRecord(
            step_id=step_id,
            start_time=result.start_time,
            duration=result.duration,
            rows=rows,
            input_shape=result.input_shape,
            num_padding_tokens=math.prod(result.input_shape) - sum(row.num_scheduled_tokens for row in rows),
            attention_pairs=sum(row.num_scheduled_tokens**2 for row in rows),
            pool="streaming" if is_streaming else "whole",
            waiting_ids=waiting_ids,
            admitted_ids=admitted_ids,
            finished_ids=[sequence.sequence_id for sequence in leaving],
        )
        self.recorder.append(step)
        self._deliver(batch if is_streaming else leaving)
        for sequence in leaving:
            assert sequence.finish_reason is not None
            self.finish(sequence.sequence_id, sequence.finish_reason)
        for sequence in aborted:
            self.finish(sequence.sequence_id, FinishReason.ABORT)
        self.recorder.append(sample)

    # Parts of a step

    def _update(self, sequence: Sequence, row: RowResult, step_id: int) -> None:
        """Take the new token in, unless the row was computed for nothing."""
        if sequence.done:
            return
        sequence.num_steps += 1
        sampling = sequence.stream.request.sampling
        if row.is_eos and not sampling.ignore_eos:
            sequence.finish_reason = FinishReason.STOP
            return
        sequence.undelivered.append(
            EmittedToken(
                step_id, TokenChunk(text=row.new_text, index=sequence.num_generated, token_id=row.token_id)
            )
        )
        sequence.text, sequence.pending_ids = row.text, row.pending_ids
        sequence.num_generated += 1
        if sequence.num_generated >= sampling.max_tokens or row.num_tokens + 1 >= self.max_model_len:
            sequence.finish_reason = FinishReason.LENGTH

    def _deliver(self, sequences: list[Sequence]) -> None:
        """Hand tokens to whoever asked: streams at every step, whole answers when they leave.

        On the record first: whoever has read an answer finds all of it in the trace.
        """
        for sequence in sequences:
            tokens = sequence.take_undelivered()
            self.recorder.extend(
                TokenEmitted(
                    request_id=sequence.sequence_id, index=chunk.index, step_id=step_id, time=time.monotonic()
                )
                for step_id, chunk in tokens
            )
            for _, chunk in tokens:
                sequence.stream.put(chunk)

    def _sample_queues(self, batch: list[Sequence], result: StepResult) -> QueueSample:
        return QueueSample(
            time=time.monotonic(),
            queues={
                **self.workload_manager.depths(),
                "request_queue": result.request_queue_depth,
                "result_queue": self.executor.result_queue_depth(),
            },
            streams={sequence.sequence_id: sequence.stream.depth for sequence in batch},
            num_misdelivered=self.executor.num_misdelivered,
        )

    def _fail(self, batch: list[Sequence], error: ServescopeError, is_streaming: bool) -> None:
        self.workload_manager.end_step(is_streaming)
        for sequence in batch:
            self.workload_manager.drop(sequence.sequence_id)
            self.finish(sequence.sequence_id, FinishReason.ERROR, error)

    # What ``HostedEngine`` asks for

    def worker_config(self, model: PreparedModel) -> WorkerConfig:
        return WorkerConfig(
            model_path=str(model.path),
            device=self.settings.device,
            eos_token_ids=list(model.eos_token_ids),
        )

    def engine_config(self, ready: WorkerReady) -> EngineConfig:
        return EngineConfig(max_model_len=self.max_model_len, batch_size=self.settings.batch_size)

    def enqueue(self, stream: RequestStream) -> None:
        sequence = Sequence(stream, text=stream.request.prompt)
        if stream.request.stream:
            self.workload_manager.add_streaming_request(sequence)
        else:
            self.workload_manager.add_request(sequence)

    def drop(self, request_id: str) -> bool:
        return self.workload_manager.drop(request_id)

    def on_message(self, message: StepResult) -> None:
        self.executor.deliver(message)

    def on_worker_ready(self) -> None:
        self.executor.reset()
        for loop in self._loops:
            if not loop.ident:
                loop.start()

    def on_worker_death(self, error: EngineDied) -> None:
        self.executor.fail(error)

    async def stop(self) -> None:
        await super().stop()
        self.workload_manager.close()
        self.gate.close()


def _next_of(steps: Iterator[StepResult], _: list[Sequence]) -> StepResult:
    """The next step of a batch of whole answers, which the iterator knows."""
    return next(steps)


def _row(sequence: Sequence, row: RowResult) -> ScheduledRow:
    """The row as it was before the step's token was taken in."""
    phase = Phase.DECODE if sequence.num_steps else Phase.PREFILL
    if sequence.done:
        phase = Phase.FINISHED
    return ScheduledRow(
        request_id=sequence.sequence_id,
        phase=phase,
        num_scheduled_tokens=row.num_tokens,
        num_computed_tokens=0,  # nothing is kept from earlier steps
    )


def _check_whose(result: StepResult, batch: list[Sequence]) -> None:
    """Under ``ResultRouting.SHARED`` a result can be another call's: nobody's text may reach
    somebody else, so both calls fail. Raises ``MisdeliveredResult``."""
    if [row.sequence_id for row in result.rows] != [sequence.sequence_id for sequence in batch]:
        raise MisdeliveredResult(
            "The result of another call arrived here: with result_routing=shared all calls wait on one queue."
        )
