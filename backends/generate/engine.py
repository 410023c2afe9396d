"""The ``generate`` engine: ``model.generate()``, as most people meet it first.

Its queue and its batches live in the worker, beside the model: what the server's side does is
pass requests on, and tokens back.
"""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

from backends.base import BackendInfo, ControlAction, GenerationRequest, TokenChunk
from backends.errors import EngineDied, InvalidRequest
from backends.generate.messages import (
    AbortRequest,
    AddRequest,
    Ended,
    FromWorker,
    SetGate,
    StepDone,
    StepOnce,
    Token,
    WorkerConfig,
)
from backends.hosted import HostedEngine
from backends.models import PreparedModel
from backends.records import EngineConfig, Exposure, QueueSample, TokenEmitted
from backends.settings import Settings
from backends.streams import RequestStream

SEQUENTIAL, STATIC = "sequential", "static"


class GenerateEngine(HostedEngine):
    """Implements ``base.Backend``."""

    info = BackendInfo(
        name="generate",
        title="generate",
        modes=(SEQUENTIAL, STATIC),
        supported=frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos"}),
        controls=frozenset(ControlAction),
    )
    measured: ClassVar = {
        "batch": Exposure.MEASURED,
        "kv": Exposure.MEASURED,
        "queues": Exposure.MEASURED,
        "latency": Exposure.DERIVED,
    }
    notes: ClassVar = {
        "kv": "Every row reserves slots for the longest text the engine takes, whatever it needs. "
        "Filled: slots that hold K and V of its own tokens, those computed for nothing included.",
        "latency": "From the engine's stamps: TTFT = first token − arrival, ITL = gap between two tokens. "
        "A static batch gives all its tokens when its longest row is done.",
    }
    message_type = FromWorker
    main = "backends.generate.model_worker:main"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._next_step_id = 0

    # What ``HostedEngine`` asks for

    def check_request(self, request: GenerationRequest) -> None:
        if request.mode == STATIC and request.sampling.seed is not None:
            raise InvalidRequest(
                "A static batch cannot honour seed: its rows draw from one generator.", field="seed"
            )

    def worker_config(self, model: PreparedModel) -> WorkerConfig:
        return WorkerConfig(
            model=model,
            device=self.settings.device,
            max_model_len=self.max_model_len,
            batch_size=self.settings.batch_size,
            first_step_id=self._next_step_id,
        )

    def engine_config(self) -> EngineConfig:
        return EngineConfig(max_model_len=self.max_model_len, batch_size=self.settings.batch_size)

    def enqueue(self, stream: RequestStream) -> None:
        request = stream.request
        self._tell_worker(
            AddRequest(
                request_id=request.request_id,
                prompt_ids=self.codec.encode(request.prompt),
                sampling=request.sampling,
                static=request.mode == STATIC,
            )
        )

    def drop(self, request_id: str) -> bool:
        """The worker says ``Ended`` when it is gone; a dead one has dropped it already."""
        return not self._tell_worker(AbortRequest(request_id))

    def on_worker_ready(self) -> None:
        self._set_gate()

    def on_worker_death(self, error: EngineDied) -> None:
        """Nothing of ours waits for the worker: those in flight are failed by ``HostedEngine``."""

    def on_gate_changed(self, action: ControlAction) -> None:
        if action is ControlAction.STEP:
            self._tell_worker(StepOnce())
        else:
            self._set_gate()

    def on_message(self, message: FromWorker) -> None:
        match message:
            case StepDone():
                self._take_step(message)
            case Ended():
                self._end(message)

    # Parts of the above

    def _take_step(self, step: StepDone) -> None:
        self._next_step_id = step.record.step_id + 1
        streams = dict(self._streams)
        tokens = [token for token in step.tokens if token.request_id in streams]
        sample = QueueSample(
            time=time.monotonic(),
            queues={"waiting": step.num_waiting},
            streams={request_id: stream.depth for request_id, stream in streams.items()},
        )
        emitted_at = step.record.start_time + step.record.duration
        self.recorder.extend([step.record, sample, *(_emitted(token, emitted_at) for token in tokens)])
        for token in tokens:
            chunk = TokenChunk(text=token.text, index=token.index, token_id=token.token_id)
            streams[token.request_id].put(chunk)
        for ended in step.ended:
            self._end(ended)

    def _end(self, ended: Ended) -> None:
        self.finish(ended.request_id, ended.reason, text=ended.text)

    def _set_gate(self) -> None:
        self._tell_worker(SetGate(paused=self.gate.paused, step_delay=self.gate.delay))

    def _tell_worker(self, message: AddRequest | AbortRequest | SetGate | StepOnce) -> bool:
        """False: the worker is gone, and all in flight are told so elsewhere."""
        with contextlib.suppress(EngineDied):
            self.send(message)
            return True
        return False


def _emitted(token: Token, time: float) -> TokenEmitted:
    return TokenEmitted(request_id=token.request_id, index=token.index, step_id=token.step_id, time=time)
