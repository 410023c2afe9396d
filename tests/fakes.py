"""``FakeBackend``: a real ``Backend`` with a scripted model, for tests that need no weights.

It batches, pauses, steps, dies and comes back like an engine of our own, and every record it
emits is true of what it did: words are its tokens, and it keeps no KV cache.

    fake = FakeBackend("naive", script=lambda index: f" {index}")
    fake.gate.pause()
    …
    await fake.control(ControlAction.STEP)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

from backends import admission
from backends.base import BackendInfo, ControlAction, GenerationRequest, TokenChunk
from backends.errors import EngineDied, EngineUnavailable, InvalidRequest
from backends.gate import Gate
from backends.lifecycle import Lifecycle
from backends.recorder import Recorder
from backends.records import (
    SCHEMA_VERSION,
    AnyRecord,
    EngineConfig,
    EngineState,
    Exposure,
    FinishReason,
    ModelShape,
    Phase,
    QueueSample,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    StepRecord,
    TokenEmitted,
    TraceHeader,
)
from backends.seats import SeatAllocator
from backends.settings import Settings
from backends.streams import RequestStream

Script = Callable[[int], str | None]
"""Index of a token → its text; ``None`` ends the answer."""


def alphabet(index: int) -> str:
    """`` a``, `` b``, `` c`` … without end."""
    return f" {chr(ord('a') + index % 26)}"


def _end(reason: FinishReason) -> TokenChunk:
    return TokenChunk(text="", index=-1, finish_reason=reason)


class _Request:
    """A request in flight."""

    def __init__(self, stream: RequestStream, num_prompt_tokens: int) -> None:
        self.stream = stream
        self.id = stream.request.request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.num_tokens = 0
        self.held: list[TokenChunk] = []
        """Chunks of a whole answer, which is given at its end."""
        self.aborted = False

    @property
    def length(self) -> int:
        return self.num_prompt_tokens + self.num_tokens

    def row(self) -> ScheduledRow:
        return ScheduledRow(
            request_id=self.id,
            phase=Phase.DECODE if self.num_tokens else Phase.PREFILL,
            num_scheduled_tokens=self.length,
            num_computed_tokens=0,
        )

    def give(self, chunk: TokenChunk) -> None:
        if self.stream.request.stream:
            self.stream.put(chunk)
            return
        self.held.append(chunk)
        if chunk.finish_reason is not None:
            for held in self.held:
                self.stream.put(held)


class FakeBackend:
    """Implements ``base.Backend``; its engine is a thread."""

    def __init__(
        self,
        name: str = "naive",
        *,
        settings: Settings | None = None,
        script: Script = alphabet,
        modes: tuple[str, ...] = (),
        supported: frozenset[str] = frozenset(),
        step_seconds: float = 0.0,
        capacity: int = 10_000,
        unavailable: str | None = None,
    ) -> None:
        self.settings = settings or Settings(max_model_len=64)
        self.info = BackendInfo(
            name=name, title=name, modes=modes, supported=supported, controls=frozenset(ControlAction)
        )
        self.recorder = Recorder(name, capacity=capacity)
        self.gate = Gate(has_work=lambda: bool(self._in_flight))
        self.unavailable = unavailable
        """A reason makes every start from now on fail for good."""
        self.may_start = asyncio.Event()
        """Cleared, a start stays at ``progress`` until it is set."""
        self.may_start.set()
        self.step_seconds = step_seconds
        self._script = script
        self._seats = SeatAllocator()
        self._in_flight: dict[str, _Request] = {}
        self._running: list[_Request] = []
        self._in_step = False
        self._step_id = 0
        self._engine: object | None = None
        """Identity of the engine that is up, so that the thread of a dead one knows it is dead."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._lifecycle = Lifecycle(name, self.recorder, self._launch)

    # Backend

    @property
    def state(self) -> EngineState:
        return self._lifecycle.state

    @property
    def num_in_flight(self) -> int:
        return len(self._in_flight)

    async def start(self) -> None:
        await self._lifecycle.ensure_ready()

    async def stop(self) -> None:
        await self._lifecycle.stop()
        await self._end(EngineDied("The server is shutting down."))

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        admission.check_fields(request, self.info, self.settings)
        await self.start()
        stream = self._admit(request)
        try:
            while True:
                chunk = await stream.get()
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            self._abort(request.request_id)

    async def abort(self, request_id: str) -> None:
        self._abort(request_id)

    async def abort_visitor(self, visitor: str) -> None:
        for request in list(self._in_flight.values()):
            if request.stream.request.visitor == visitor:
                self._abort(request.id)

    async def count_prompt_tokens(self, prompt: str) -> int:
        return len(prompt.split())

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        return "\n".join(f"{message['role']}: {message['content']}" for message in messages)

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        match action:
            case ControlAction.PAUSE:
                self.gate.pause()
            case ControlAction.RESUME:
                self.gate.resume()
            case ControlAction.STEP:
                self.gate.step()
            case ControlAction.SPEED:
                self.gate.set_delay(admission.check_step_delay(value))
            case ControlAction.RESTART:
                await self._lifecycle.restart(
                    lambda: self._end(EngineDied(f"{self.info.title} was restarted."))
                )
                return
            case ControlAction.KILL_WORKER:
                self.die()
                return
        self._lifecycle.set_gate(paused=self.gate.paused, step_delay=self.gate.delay)

    # What a test can make it do

    def die(self, message: str = "The worker was killed.") -> None:
        """As if the process had been killed: everyone in flight is told, and it comes back."""
        if self._engine is None:
            raise InvalidRequest(f"{self.info.title} has no running process to kill.", field="action")
        error = EngineDied(message)
        self._quit()
        self._fail_all(error)
        self._lifecycle.died(error)

    # Coming up and going down

    async def _launch(self) -> None:
        self._lifecycle.progress(0.5, "Loading the weights")
        await self.may_start.wait()
        if self.unavailable is not None:
            raise EngineUnavailable(self.unavailable)
        self._engine = engine = object()
        self._in_step = False
        self._thread = threading.Thread(
            target=self._run, args=(engine,), name=f"{self.info.name} engine", daemon=True
        )
        self._thread.start()
        self.recorder.append(self._header())

    async def _end(self, error: EngineDied) -> None:
        self._quit()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._fail_all(error)

    def _quit(self) -> None:
        with self._changed:
            self._engine = None
            self._changed.notify_all()
        self.gate.nudge()

    def _fail_all(self, error: EngineDied) -> None:
        with self._changed:
            for request in list(self._in_flight.values()):
                self.recorder.append(self._finish(request, FinishReason.ERROR, error))
                request.stream.put(error)

    def _header(self) -> TraceHeader:
        return TraceHeader(
            schema_version=SCHEMA_VERSION,
            backend=self.info.name,
            model="scripted words",
            device="none",
            dtype="str",
            engine=EngineConfig(
                max_model_len=self.settings.max_model_len, batch_size=self.settings.batch_size
            ),
            shape=ModelShape(
                num_layers=2,
                hidden_size=8,
                num_attention_heads=2,
                num_kv_heads=2,
                head_dim=4,
                vocab_size=26,
                num_parameters=None,
            ),
            versions={"fake": "1"},
            hardware="no hardware",
            started_at=datetime.now(UTC).isoformat(),
            start_time=time.monotonic(),
            measured={
                "batch": Exposure.MEASURED,
                "kv": Exposure.DERIVED,
                "queues": Exposure.MEASURED,
                "latency": Exposure.DERIVED,
            },
            notes={"kv": "No KV cache: each step computes the whole sequence again."},
        )

    # Requests

    def _admit(self, request: GenerationRequest) -> RequestStream:
        num_prompt_tokens = len(request.prompt.split())
        admission.check_length(num_prompt_tokens, self.settings.max_model_len)
        admission.check_room(len(self._in_flight), self.settings.max_waiting)
        seat = self._seats.take(request.request_id, request.visitor)
        stream = RequestStream(request, asyncio.get_running_loop())
        with self._changed:
            self.recorder.append(
                RequestArrived(
                    request_id=request.request_id,
                    seat=seat,
                    num_prompt_tokens=num_prompt_tokens,
                    max_tokens=request.sampling.max_tokens,
                    source=request.source,
                    stream=request.stream,
                    time=time.monotonic(),
                )
            )
            self._in_flight[request.request_id] = _Request(stream, num_prompt_tokens)
            self._changed.notify_all()
        return stream

    def _abort(self, request_id: str) -> None:
        with self._changed:
            request = self._in_flight.get(request_id)
            if request is None:
                return
            if self._in_step and request in self._running:
                request.aborted = True  # the step under way ends it
            else:
                self.recorder.append(self._finish(request, FinishReason.ABORT))
                request.give(_end(FinishReason.ABORT))
        self.gate.nudge()

    def _finish(
        self, request: _Request, reason: FinishReason, error: EngineDied | None = None
    ) -> RequestFinished:
        """End a request; the lock is held. It is on the record before whoever asked is told."""
        del self._in_flight[request.id]
        if request in self._running:
            self._running.remove(request)
        self._seats.release(request.id)
        return RequestFinished(
            request_id=request.id,
            reason=reason,
            time=time.monotonic(),
            message=error.message if error else None,
        )

    # The engine's thread

    def _run(self, engine: object) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._in_flight or self._engine is not engine)
            if self._engine is not engine:
                return
            with self.gate.turn(lambda: self._engine is engine and bool(self._in_flight)) as granted:
                if granted:
                    self._step(engine)

    def _step(self, engine: object) -> None:
        start_time = time.monotonic()
        with self._changed:
            waiting = [request for request in self._in_flight.values() if request not in self._running]
            admitted = waiting[: self.settings.batch_size - len(self._running)]
            self._running += admitted
            waiting = waiting[len(admitted) :]
            rows = [request.row() for request in self._running]
            self._in_step = True
        time.sleep(self.step_seconds)
        with self._changed:
            if self._engine is not engine or not rows:
                return
            self._in_step = False
            tokens, finished, chunks = self._emit()
            step = self._step_record(start_time, rows, waiting, admitted, finished)
            self.recorder.extend((step, *tokens, *finished, self._queue_sample()))
            self._step_id += 1
            for request, chunk in chunks:
                request.give(chunk)

    def _emit(
        self,
    ) -> tuple[list[AnyRecord], list[RequestFinished], list[tuple[_Request, TokenChunk]]]:
        """A token for each running request, and what to tell whom; the lock is held."""
        tokens: list[AnyRecord] = []
        finished: list[RequestFinished] = []
        chunks: list[tuple[_Request, TokenChunk]] = []
        for request in list(self._running):
            text = None if request.aborted else self._script(request.num_tokens)
            if text is not None:
                index = request.num_tokens
                request.num_tokens += 1
                now = time.monotonic()
                tokens.append(
                    TokenEmitted(request_id=request.id, index=index, step_id=self._step_id, time=now)
                )
                chunks.append((request, TokenChunk(text=text, index=index)))
            reason = self._reason_to_end(request, text)
            if reason is not None:
                finished.append(self._finish(request, reason))
                chunks.append((request, _end(reason)))
        return tokens, finished, chunks

    def _reason_to_end(self, request: _Request, text: str | None) -> FinishReason | None:
        if request.aborted:
            return FinishReason.ABORT
        if text is None:
            return FinishReason.STOP
        is_full = request.length >= self.settings.max_model_len
        has_all = request.num_tokens == request.stream.request.sampling.max_tokens
        return FinishReason.LENGTH if is_full or has_all else None

    def _step_record(
        self,
        start_time: float,
        rows: list[ScheduledRow],
        waiting: list[_Request],
        admitted: list[_Request],
        finished: list[RequestFinished],
    ) -> StepRecord:
        lengths = [row.num_scheduled_tokens for row in rows]
        return StepRecord(
            step_id=self._step_id,
            start_time=start_time,
            duration=time.monotonic() - start_time,
            rows=rows,
            input_shape=[len(rows), max(lengths)],
            num_padding_tokens=len(rows) * max(lengths) - sum(lengths),
            attention_pairs=sum(length * length for length in lengths),
            waiting_ids=[request.id for request in waiting if request not in admitted],
            admitted_ids=[request.id for request in admitted],
            finished_ids=[record.request_id for record in finished],
        )

    def _queue_sample(self) -> QueueSample:
        return QueueSample(
            time=time.monotonic(),
            queues={"incoming_queue": len(self._in_flight) - len(self._running)},
            streams={request.id: request.stream.depth for request in self._in_flight.values()},
        )


def make_fake(name: str, /, **settings: object) -> FakeBackend:
    """A private engine for an experiment."""
    return FakeBackend(name, settings=Settings(**settings))
