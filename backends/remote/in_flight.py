"""Requests in flight: each has a task that reads its connection, and a stream for whoever asked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from backends import admission
from backends.base import GenerationRequest, TokenChunk, sample_id, sample_index
from backends.errors import ServescopeError
from backends.recorder import Recorder
from backends.records import FinishReason, QueueSample, RequestArrived, RequestFinished
from backends.remote.answer import Answer, Arrived
from backends.seats import SeatAllocator
from backends.streams import RequestStream

logger = logging.getLogger(__name__)

SAMPLE_INTERVAL = 0.1
"""Least seconds between two samples of how many tokens wait to be read."""

Ask = Callable[[GenerationRequest, Callable[[Arrived], None]], Awaitable[Answer]]
"""Get the answer; what comes is told as it comes. Raises ``ServescopeError``."""


@dataclass
class _Running:
    stream: RequestStream
    unended: list[str]
    """Its texts, as the records name them, that have not ended."""
    task: asyncio.Task[None]
    error: ServescopeError | None = None
    """Why it is cancelled; ``None`` for an abort."""


class RequestsInFlight:
    """Lives on the event loop. Every text ends once: on the record first, then for whoever asked."""

    def __init__(self, recorder: Recorder, most: int) -> None:
        self._recorder = recorder
        self._most = most
        self._seats = SeatAllocator()
        self._running: dict[str, _Running] = {}
        self._sampled_at = 0.0

    def start(self, request: GenerationRequest, ask: Ask) -> RequestStream:
        """Raises ``Overloaded``."""
        names = [sample_id(request.request_id, index) for index in range(request.sampling.n)]
        num_texts = sum(len(running.unended) for running in self._running.values())
        admission.check_room(num_texts + len(names) - 1, self._most)
        stream = RequestStream(request, asyncio.get_running_loop())
        for name in names:
            self._recorder.append(
                RequestArrived(
                    request_id=name,
                    seat=self._seats.take(name, request.visitor),
                    num_prompt_tokens=None if request.prompt_ids is None else len(request.prompt_ids),
                    max_tokens=request.sampling.max_tokens,
                    source=request.source,
                    stream=request.stream,
                    time=time.monotonic(),
                )
            )
        task = asyncio.create_task(self._serve(stream, ask))
        task.add_done_callback(lambda task: self._look_at(task, request.request_id))
        self._running[request.request_id] = _Running(stream, names, task)
        return stream

    async def abort(self, request_id: str) -> None:
        """The connection is closed when this returns, which is how a server is told. A request that
        has ended is ignored."""
        await self._end(request_id, None)

    async def abort_visitor(self, visitor: str) -> None:
        for request_id, running in list(self._running.items()):
            if running.stream.request.visitor == visitor:
                await self.abort(request_id)

    async def fail_all(self, error: ServescopeError) -> None:
        await asyncio.gather(*(self._end(request_id, error) for request_id in list(self._running)))

    async def _end(self, request_id: str, error: ServescopeError | None) -> None:
        running = self._running.get(request_id)
        if running is None:
            return
        running.error = error
        running.task.cancel()
        await asyncio.wait({running.task})

    async def _serve(self, stream: RequestStream, ask: Ask) -> None:
        request_id = stream.request.request_id

        def take(arrived: Arrived) -> None:
            self._recorder.extend(arrived.records)
            for token in arrived.tokens:
                stream.put(token)
            self._sample()

        try:
            answer = await ask(stream.request, take)
        except ServescopeError as error:
            self._finish_all(request_id, FinishReason.ERROR, error)
            return
        for name, moment, last in answer.endings():
            self._finish(request_id, name, last, moment)

    def _look_at(self, task: asyncio.Task[None], request_id: str) -> None:
        """Here a cancelled request ends, since whoever cancelled it may have been cancelled as well
        meanwhile. A fault of ours must neither go unseen nor leave anybody waiting."""
        if task.cancelled():
            running = self._running.get(request_id)
            error = None if running is None else running.error
            self._finish_all(request_id, FinishReason.ERROR if error else FinishReason.ABORT, error)
        elif (fault := task.exception()) is not None:
            logger.error("Reading an answer failed", exc_info=fault)
            self._finish_all(request_id, FinishReason.ERROR, ServescopeError("Reading the answer failed."))

    def _finish_all(
        self, request_id: str, reason: FinishReason, error: ServescopeError | None = None
    ) -> None:
        running = self._running.get(request_id)
        for name in list(running.unended) if running is not None else ():
            last = TokenChunk(text="", index=-1, sample=sample_index(name), finish_reason=reason)
            self._finish(request_id, name, last, time.monotonic(), error)

    def _finish(
        self,
        request_id: str,
        name: str,
        last: TokenChunk,
        moment: float,
        error: ServescopeError | None = None,
    ) -> None:
        running = self._running[request_id]
        running.unended.remove(name)
        self._seats.release(name)
        if not running.unended:
            del self._running[request_id]
        assert last.finish_reason is not None
        self._recorder.append(
            RequestFinished(
                request_id=name,
                reason=last.finish_reason,
                time=moment,
                message=error.message if error else None,
                num_prompt_tokens=last.num_prompt_tokens,
                num_output_tokens=last.num_output_tokens,
            )
        )
        running.stream.put(error or last)

    def _sample(self) -> None:
        now = time.monotonic()
        if now - self._sampled_at < SAMPLE_INTERVAL:
            return
        self._sampled_at = now
        depths = {
            name: running.stream.depth for running in self._running.values() for name in running.unended
        }
        self._recorder.append(QueueSample(time=now, queues={}, streams=depths))
