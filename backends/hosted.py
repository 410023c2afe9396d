"""The half that engines of our own have in common: everything between a request and a process.

A ``HostedEngine`` admits requests (or refuses them in words), gives each a seat and a stream,
brings the child process up through ``Lifecycle``, and ends every request exactly once. What an
engine does with an admitted request is its own: see ``naive/engine.py`` and
``generate/engine.py``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import msgspec

from backends import admission
from backends.base import (
    BackendInfo,
    ControlAction,
    GenerationRequest,
    TokenChunk,
    sample_id,
    sample_index,
)
from backends.engine_child import WorkerReady
from backends.engine_process import EngineProcess
from backends.errors import EngineDied, InvalidRequest, ServescopeError
from backends.gate import Gate
from backends.lifecycle import Lifecycle
from backends.models import PreparedModel, prepare_model
from backends.recorder import Recorder
from backends.records import (
    SCHEMA_VERSION,
    EngineConfig,
    EngineState,
    Exposure,
    FinishReason,
    RequestArrived,
    RequestFinished,
    TraceHeader,
)
from backends.residency import Residency
from backends.seats import SeatAllocator
from backends.settings import Settings
from backends.streams import RequestStream
from backends.text import TextCodec

TORCH_MODULES = (
    "backends.torch_worker",
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.generation.utils",
)
"""What every worker that runs torch imports, whatever its model."""

WORKING_ROOM = 1.2
"""Memory of an engine without a pool of blocks, as a multiple of its weights."""

PLAIN_CHAT = "The model has no chat template: messages reach it as plain text."


class HostedEngine(ABC):
    """Implements ``base.Backend`` around one child process."""

    info: BackendInfo
    measured: ClassVar[dict[str, Exposure]]
    """Panel → how it knows; goes into the trace header."""
    notes: ClassVar[dict[str, str]] = {}
    message_type: Any
    """What the child sends."""
    main: str
    """What the child runs, ``package.module:function``."""
    preload: ClassVar[tuple[str, ...]] = ()
    """Heavy modules of the child that are loaded once for all its lives, and for its like."""
    ready_type: ClassVar[type[WorkerReady]] = WorkerReady

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.recorder = Recorder(self.info.name)
        self.gate = Gate(has_work=self.has_work)
        self.model: PreparedModel | None = None
        self._codec: TextCodec | None = None
        self._process: EngineProcess[Any] | None = None
        self._seats = SeatAllocator()
        self._streams: dict[str, RequestStream] = {}
        self._ending = threading.Lock()
        self.residency = Residency()
        """Shared with the engines beside this one."""
        self._lifecycle = Lifecycle(self.info.name, self.recorder, self._launch)

    # What an engine adds

    @abstractmethod
    def worker_config(self, model: PreparedModel) -> Any:
        """What ``main`` gets in the child; must be picklable."""

    @abstractmethod
    def engine_config(self, ready: WorkerReady) -> EngineConfig:
        """The limits shown in the header."""

    @abstractmethod
    def enqueue(self, stream: RequestStream) -> None:
        """Take an admitted request. Called on the event loop; must not block. Raises ``EngineDied``."""

    @abstractmethod
    def drop(self, request_id: str) -> bool:
        """Forget a request. True: it is gone now. False: a step is under way with it, and the
        engine calls ``finish`` with ``FinishReason.ABORT`` at the step's end."""

    @abstractmethod
    def on_message(self, message: Any) -> None:
        """A message of the child, on the reader thread."""

    @abstractmethod
    def on_worker_death(self, error: EngineDied) -> None:
        """Wake whoever waits for the child. Requests in flight are failed afterwards."""

    def footprint(self, model: PreparedModel, total: int | None) -> int:
        """Bytes it will hold while it is up, on a device with ``total`` bytes: the weights and room to
        work in."""
        return int(WORKING_ROOM * model.weight_bytes)

    def check_request(self, request: GenerationRequest) -> None:  # noqa: B027
        """Refuse what this engine alone cannot do. Raises ``InvalidRequest`` naming the field."""

    def panels(self, ready: Any) -> tuple[dict[str, Exposure], dict[str, str]]:
        """``measured`` and ``notes`` of the header, once the child has said what it can tell."""
        return self.measured, self.notes

    def on_worker_ready(self) -> None:  # noqa: B027 - nothing to do is a fine answer
        """The child can take work; called before the first request is enqueued."""

    def on_gate_changed(self, action: ControlAction) -> None:  # noqa: B027
        """The gate was paused, resumed, stepped or slowed."""

    # Backend

    @property
    def state(self) -> EngineState:
        return self._lifecycle.state

    def has_work(self) -> bool:
        """Is any request waiting or running?"""
        return bool(self._streams)

    async def start(self) -> None:
        await self._lifecycle.ensure_ready()

    async def stop(self) -> None:
        await self._lifecycle.stop()
        await self._end_process(EngineDied("The server is shutting down."))

    async def make_way(self, reason: str) -> None:
        """Give the memory back; whoever asks next brings the engine up again."""
        await self._lifecycle.stop(reason)
        await self._end_process(EngineDied(reason))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        admission.check_fields(request, self.info, self.settings)
        self.check_request(request)
        await self.start()
        stream = self._admit(request)
        num_open = len(request.prompts)
        try:
            while num_open:
                chunk = await stream.get()
                num_open -= chunk.finish_reason is not None
                yield chunk
        finally:
            self._abort(request.request_id)

    async def abort(self, request_id: str) -> None:
        self._abort(request_id)

    async def abort_visitor(self, visitor: str) -> None:
        for stream in set(self._streams.values()):
            if stream.request.visitor == visitor:
                self._abort(stream.request.request_id)

    async def count_prompt_tokens(self, prompt: str) -> int:
        await self.start()
        return self.codec.count_tokens(prompt)

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        await self.start()
        return self.codec.render_chat(messages)

    def token_text(self, token_id: int) -> str:
        """One token as text; the engine has started, since it told of that token."""
        return self.codec.token_text(token_id)

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        if action not in self.info.controls:
            raise InvalidRequest(f"{self.info.title} has no {action}.", field="action")
        match action:
            case ControlAction.RESTART:
                restarted = EngineDied(f"{self.info.title} was restarted.")
                await self._lifecycle.restart(lambda: self._end_process(restarted))
            case ControlAction.KILL_WORKER:
                self._kill()
            case _:
                self._change_gate(action, value)

    # For the engine's own threads

    @property
    def codec(self) -> TextCodec:
        assert self._codec is not None, "the codec is there once the engine has started"
        return self._codec

    def prompt_ids(self, request: GenerationRequest) -> list[list[int]]:
        """The prompt of each text, as the model gets it. Raises ``InvalidRequest`` for ids that are
        no token's."""
        if request.prompt_ids is None:
            encoded = {prompt: self.codec.encode(prompt) for prompt in set(request.prompts)}
            return [encoded[prompt] for prompt in request.prompts]
        assert self.model is not None
        admission.check_token_ids(request.prompt_ids, self.model.shape.vocab_size)
        return [list(request.prompt_ids)] * request.sampling.n

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus answer: the operator's limit, or the model's if that is less."""
        assert self.model is not None
        return min(self.settings.max_model_len, self.model.max_position_embeddings)

    def send(self, message: msgspec.Struct) -> None:
        """Give the child a message. Raises ``EngineDied``."""
        if self._process is None:
            raise EngineDied(f"{self.info.title} is not running.")
        self._process.send(message)

    def finish(
        self,
        request_id: str,
        reason: FinishReason,
        error: ServescopeError | None = None,
        *,
        text: str = "",
    ) -> None:
        """End a request, or one of its samples, once and from any thread: on the record first, then
        to whoever asked.

        ``text``: what was held back as the possible start of a stop string that never came.
        """
        with self._ending:
            stream = self._streams.pop(request_id, None)
            if stream is None:  # it had ended before
                return
            self._seats.release(request_id)
        self.recorder.append(
            RequestFinished(
                request_id=request_id,
                reason=reason,
                time=time.monotonic(),
                message=error.message if error else None,
            )
        )
        sample = sample_index(request_id)
        stream.put(error or TokenChunk(text=text, index=-1, sample=sample, finish_reason=reason))

    # Coming up and going down

    async def _launch(self) -> None:
        model = await prepare_model(self.settings.model, self.settings.cache_dir, self._lifecycle.progress)
        self._lifecycle.progress(None, "Starting the engine's process")
        if self._codec is None:
            self._codec = await asyncio.to_thread(TextCodec.load, model)
        self.model = model
        size = self.footprint(model, self.residency.total)
        await self.residency.take(self, size, partial(self._lifecycle.progress, None))
        try:
            await self._spawn(model)
        except BaseException:
            self.residency.leave(self)
            raise

    async def _spawn(self, model: PreparedModel) -> None:
        process: EngineProcess[Any] = EngineProcess(
            name=f"{self.info.title} worker",
            main=self.main,
            config=self.worker_config(model),
            message_type=self.message_type,
            on_message=self.on_message,
            on_progress=self._on_progress,
            on_death=self._on_death,
            preload=self.preload,
        )
        self._process = process
        process.spawn()
        try:
            ready = await asyncio.wrap_future(process.ready)
        except asyncio.CancelledError:
            await asyncio.to_thread(process.stop)
            raise
        self.recorder.append(self._header(model, msgspec.msgpack.decode(ready, type=self.ready_type)))
        self.on_worker_ready()

    def _on_progress(self, fraction: float, sentence: str) -> None:
        """From the reader thread."""
        self._lifecycle.progress(fraction, sentence)

    def _on_death(self, error: EngineDied) -> None:
        """From the reader thread. The state first: whoever is told of the crash can look it up."""
        self._lifecycle.died(error)
        self.on_worker_death(error)
        self._fail_all(error)

    def _fail_all(self, error: EngineDied) -> None:
        for request_id in list(self._streams):
            self.drop(request_id)
            self.finish(request_id, FinishReason.ERROR, error)

    async def _end_process(self, error: EngineDied) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop)
        self.residency.leave(self)
        self.on_worker_death(error)
        self._fail_all(error)

    def _kill(self) -> None:
        if self._process is None or not self._process.alive:
            raise InvalidRequest(f"{self.info.title} has no running process to kill.", field="action")
        self._process.kill()

    def _header(self, model: PreparedModel, ready: WorkerReady) -> TraceHeader:
        measured, notes = self.panels(ready)
        return TraceHeader(
            schema_version=SCHEMA_VERSION,
            backend=self.info.name,
            model=model.name,
            device=ready.device,
            dtype=ready.dtype,
            engine=self.engine_config(ready),
            shape=model.shape,
            versions=ready.versions,
            hardware=ready.hardware,
            started_at=datetime.now(UTC).isoformat(),
            start_time=time.monotonic(),
            measured=measured,
            notes=notes if model.has_chat_template else {**notes, "chat": PLAIN_CHAT},
        )

    # One request

    def _admit(self, request: GenerationRequest) -> RequestStream:
        self.residency.touch(self)
        prompts = self.prompt_ids(request)
        for prompt_ids in prompts:
            admission.check_length(len(prompt_ids), self.max_model_len)
        admission.check_room(len(self._streams) + len(prompts) - 1, self.settings.max_waiting)
        stream = RequestStream(request, asyncio.get_running_loop(), prompts)
        for index, prompt_ids in enumerate(prompts):
            request_id = sample_id(request.request_id, index)
            self.recorder.append(
                RequestArrived(
                    request_id=request_id,
                    seat=self._seats.take(request_id, request.visitor),
                    num_prompt_tokens=len(prompt_ids),
                    max_tokens=request.sampling.max_tokens,
                    source=request.source,
                    stream=request.stream,
                    time=time.monotonic(),
                )
            )
            self._streams[request_id] = stream
        try:
            self.enqueue(stream)
        except EngineDied as error:  # only now: those in flight before have been told
            for index in range(len(prompts)):
                self.finish(sample_id(request.request_id, index), FinishReason.ERROR, error)
        return stream

    def _abort(self, request_id: str) -> None:
        """With all samples that have not ended."""
        in_flight = list(self._streams.items())  # other threads end requests meanwhile
        ids = [key for key, stream in in_flight if stream.request.request_id == request_id]
        if not ids or not self.drop(request_id):
            return
        for key in ids:
            self.finish(key, FinishReason.ABORT)
        self.gate.nudge()

    def _change_gate(self, action: ControlAction, value: float | None) -> None:
        match action:
            case ControlAction.PAUSE:
                self.gate.pause()
            case ControlAction.RESUME:
                self.gate.resume()
            case ControlAction.STEP:
                self.gate.step()
            case ControlAction.SPEED:
                self.gate.set_delay(admission.check_step_delay(value))
        self.on_gate_changed(action)
        self._lifecycle.set_gate(paused=self.gate.paused, step_delay=self.gate.delay)
