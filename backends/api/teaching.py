"""The two teaching routes: a whole answer, and a stream of one frame a token.

    POST /generate         {"prompt": str, "max_tokens"?: 20, "temperature"?: 0.7}
                           → {"sequence_id": str, "generated_text": str}, after the whole batch
    POST /generate_stream  the same body
                           → data: {"token": " a", "sequence_id": "…"}   a frame for each token

``?backend=`` picks another engine, ``?mode=`` another way to run it. With ``?trace=1`` each frame of a
stream also tells when its token was where: ``backends/api/journey.py::Stamps``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AfterValidator, BaseModel, ConfigDict

from backends import admission
from backends.api.body import encodable, json_route
from backends.api.disconnect import cancel, unless_gone
from backends.api.errors import error_body
from backends.api.journey import Journey
from backends.api.share import callers_share
from backends.api.sse import EventStream, sse_frame
from backends.base import Backend, GenerationRequest, SamplingParams, TokenChunk
from backends.errors import ServescopeError
from backends.records import Source, State
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Share, Visitors

PATIENCE = 5.0
"""Seconds a stream waits for its first token before it sends its headers, so that a request
that is refused meanwhile still gets the status that says so; and between two keep-alives."""


class GenerateBody(BaseModel):
    """Strict: a number in quotes or a boolean is a mistake, and so is an unknown field."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    prompt: Annotated[str, AfterValidator(encodable)]
    max_tokens: int = 20
    temperature: float = 0.7


class Generated(BaseModel):
    sequence_id: str
    generated_text: str


def create_router(registry: Registry, settings: Settings, visitors: Visitors) -> APIRouter:
    router = APIRouter(route_class=json_route(settings.max_model_len), tags=["teaching"])
    callers = callers_share(visitors, settings)

    def prepare(
        body: GenerateBody, backend: str | None, mode: str | None, *, stream: bool, traced: bool = False
    ) -> tuple[Backend, GenerationRequest]:
        """The engine and a request that it can serve. Raises before anything is started."""
        engine = registry.get(registry.default if backend is None else backend)
        request = GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt=body.prompt,
            sampling=SamplingParams(max_tokens=body.max_tokens, temperature=body.temperature),
            source=Source.API,
            stream=stream,
            mode=mode,
            traced=traced,
        )
        admission.check_fields(request, engine.info, settings)
        return engine, request

    @router.post("/generate", response_model=Generated)
    async def generate(
        request: Request,
        body: GenerateBody,
        backend: str | None = None,
        mode: str | None = None,
        share: Share = callers,
    ) -> Response:
        """A whole answer, when the batch it ran in is done."""
        engine, generation = prepare(body, backend, mode, stream=False)
        share.take()
        text = await unless_gone(request, _whole_text(engine, generation))
        return JSONResponse({"sequence_id": generation.request_id, "generated_text": text})

    @router.post("/generate_stream", response_class=StreamingResponse)
    async def generate_stream(
        request: Request,
        body: GenerateBody,
        backend: str | None = None,
        mode: str | None = None,
        trace: bool = False,
        share: Share = callers,
    ) -> Response:
        """Server-sent events: one frame a token; an ``error`` event if the engine fails midway."""
        engine, generation = prepare(body, backend, mode, stream=True, traced=trace)
        share.take()
        answer = _Answer(engine, generation)
        try:
            await unless_gone(request, answer.settle())
            answer.raise_refusal()
        except BaseException:  # refused, or the client has gone, or the server is going
            await answer.close()
            raise
        return EventStream(answer.frames(), answer.close)

    return router


async def _whole_text(engine: Backend, request: GenerationRequest) -> str:
    async with aclosing(engine.generate(request)) as chunks:
        return "".join([chunk.text async for chunk in chunks])


class _Answer:
    """An answer that is being streamed. Its first chunk is asked for at once."""

    def __init__(self, engine: Backend, request: GenerationRequest) -> None:
        self._engine = engine
        self._sequence_id = request.request_id
        self._journey = Journey(engine, request.request_id) if request.traced else None
        self._chunks = engine.generate(request)
        self._first = asyncio.ensure_future(anext(self._chunks))

    async def settle(self) -> None:
        """Wait for the first chunk or a refusal, as long as headers can wait."""
        await asyncio.wait({self._first}, timeout=PATIENCE)

    def raise_refusal(self) -> None:
        """Raise what refused the request, as long as a status can say so."""
        if self._first.done():
            self._first.result()

    async def frames(self) -> AsyncIterator[str]:
        """A frame a token; before the first, a comment now and then while the engine starts."""
        try:
            while not self._first.done():
                await self.settle()
                if not self._first.done() and self._engine.state.state in (State.STARTING, State.RESTARTING):
                    yield _comment(self._engine)
            chunk = await self._first
            while chunk.finish_reason is None:
                yield self._frame(chunk)
                chunk = await anext(self._chunks)
            if chunk.text:  # held back until the end was known
                yield self._frame(chunk)
        except ServescopeError as error:
            yield "event: error\n" + sse_frame(error_body(error))

    def _frame(self, chunk: TokenChunk) -> str:
        data: dict[str, object] = {"token": chunk.text, "sequence_id": self._sequence_id}
        if self._journey is not None and chunk.finish_reason is None:
            data["trace"] = msgspec.to_builtins(self._journey.stamps(chunk))
        return sse_frame(data)

    async def close(self) -> None:
        """Abort the request if it has not ended."""
        await cancel(self._first)
        await self._chunks.aclose()


def _comment(engine: Backend) -> str:
    """A keep-alive that a person with curl can read and a program skips."""
    state = engine.state
    progress = "" if state.progress is None else f" ({state.progress:.0%})"
    reason = "" if state.reason is None else f": {' '.join(state.reason.split())}"
    return f": {engine.info.name} is {state.state.value}{reason}{progress}\n\n"
