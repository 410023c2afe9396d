"""The server's side of an engine whose queue and batches live in its worker, beside the model.

It passes requests on, and records and tokens back; what happens to them is the worker's business.
"""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

import msgspec

from backends.base import ControlAction, TokenChunk, sample_index
from backends.errors import EngineDied, InvalidRequest
from backends.hosted import HostedEngine
from backends.records import AnyRecord, Exposure, QueueSample, StepRecord, TokenEmitted
from backends.settings import Settings
from backends.streams import RequestStream
from backends.worker_messages import (
    AbortRequest,
    AddRequest,
    SetGate,
    StepOnce,
    Token,
    WorkerUpdate,
)


class QueuedEngine(HostedEngine):
    """A ``HostedEngine`` that speaks ``worker_messages`` with its worker."""

    message_type = WorkerUpdate
    measured: ClassVar = {
        "batch": Exposure.MEASURED,
        "kv": Exposure.MEASURED,
        "queues": Exposure.MEASURED,
        "latency": Exposure.DERIVED,
    }

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.next_step_id = 0
        """Steps are counted on over the lives of several workers."""

    # What ``HostedEngine`` asks for

    def enqueue(self, stream: RequestStream) -> None:
        request = stream.request
        self.send(
            AddRequest(
                request_id=request.request_id,
                prompt_ids=stream.prompt_ids[0],
                sampling=request.sampling,
                mode=request.mode,
                cache_salt=request.cache_salt,
            )
        )

    def drop(self, request_id: str) -> bool:
        """The worker says when it is gone; a dead one has dropped it already."""
        return not self._tell_worker(AbortRequest(request_id))

    def on_worker_ready(self) -> None:
        self._set_gate()

    def on_worker_death(self, error: EngineDied) -> None:
        """Nothing of ours waits for the worker: those in flight are failed by ``HostedEngine``."""

    def on_gate_changed(self, action: ControlAction) -> None:
        if action is ControlAction.STEP:
            self._tell_worker(StepOnce(time.monotonic()))
        else:
            self._set_gate()

    def on_message(self, message: WorkerUpdate) -> None:
        """On the record first: whoever has read an answer finds all of it in the trace."""
        streams = dict(self._streams)
        tokens = [token for token in message.tokens if token.request_id in streams]
        self.recorder.extend([*message.records, *self._emitted(message.records, tokens)])
        for token in tokens:
            streams[token.request_id].put(
                TokenChunk(
                    text=token.text,
                    index=token.index,
                    token_id=token.token_id,
                    sample=sample_index(token.request_id),
                    logprob=token.logprob,
                    top_logprobs=token.top_logprobs,
                )
            )
        for ended in message.ended:
            error = InvalidRequest(ended.refusal) if ended.refusal else None
            self.finish(ended.request_id, ended.reason, error, text=ended.text)
        waiting = {} if message.num_waiting is None else {"waiting": message.num_waiting}
        self.recorder.append(
            QueueSample(
                time=time.monotonic(),
                queues=waiting | message.queues,
                streams={request_id: stream.depth for request_id, stream in streams.items()},
            )
        )

    # Parts of the above

    def _emitted(self, records: list[AnyRecord], tokens: list[Token]) -> list[TokenEmitted]:
        """A token leaves the engine when its step ends."""
        steps = [record for record in records if isinstance(record, StepRecord)]
        if not steps:
            return []
        self.next_step_id = steps[-1].step_id + 1
        now = steps[-1].start_time + steps[-1].duration
        return [
            TokenEmitted(request_id=token.request_id, index=token.index, step_id=token.step_id, time=now)
            for token in tokens
        ]

    def _set_gate(self) -> None:
        self._tell_worker(SetGate(paused=self.gate.paused, step_delay=self.gate.delay))

    def _tell_worker(self, message: msgspec.Struct) -> bool:
        """False: the worker is gone, and all in flight are told so elsewhere."""
        with contextlib.suppress(EngineDied):
            self.send(message)
            return True
        return False
