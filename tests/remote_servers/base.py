"""A server of OpenAI's API on a free loopback port, in the test's own event loop.

Subclasses are dialects: each says what it offers and how it writes an answer, an error, its figures.
What is answered is always the same words, one a token.
"""

from __future__ import annotations

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.listening import ListeningServer

WORDS = ("Once", " upon", " a", " time", ".")


class RemoteServer(ABC):
    """What all dialects share."""

    model: ClassVar = "tiny-model"
    num_prompt_tokens: ClassVar = 7
    done: ClassVar = "data: [DONE]\n\n"

    def __init__(self, *, words: tuple[str, ...] = WORDS, tokens_per_chunk: int = 1) -> None:
        self.words = words
        self.tokens_per_chunk = tokens_per_chunk
        self.asked: list[dict[str, Any]] = []
        """Bodies of the requests for an answer."""
        self.headers: list[dict[str, str]] = []
        """Of all requests."""
        self.refusals: list[Response] = []
        """Answered in order, before anything else is."""
        self.gate: asyncio.Semaphore | None = None
        """Each chunk takes one, where there is one."""
        self.num_open = 0
        """Answers under way."""
        self.closed = asyncio.Event()
        """Some client has closed its connection before the end."""
        self.key: str | None = None
        self._news = asyncio.Event()

    # What a dialect says

    @abstractmethod
    def models(self) -> list[dict[str, Any]]: ...

    def pages(self) -> dict[str, Response]:
        """Other paths there are to get."""
        return {}

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        """What this kind of server does not take."""
        return None

    def unauthorized(self) -> Response:
        return JSONResponse({"error": {"message": f"Wrong key {self.headers[-1]['authorization']}"}}, 401)

    @abstractmethod
    def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]: ...

    # What all do

    def parts(self, body: dict[str, Any]) -> Iterator[tuple[str, int, str | None]]:
        """Text, number of tokens so far and finish reason of each chunk."""
        words = self.words[: body["max_tokens"]]
        reason = "length" if len(words) < len(self.words) else "stop"
        for start in range(0, len(words), self.tokens_per_chunk):
            end = min(start + self.tokens_per_chunk, len(words))
            yield "".join(words[start:end]), end, reason if end == len(words) else None

    async def paced(self, body: dict[str, Any]) -> AsyncIterator[tuple[str, int, str | None]]:
        for part in self.parts(body):
            if self.gate is not None:
                await self.gate.acquire()
            yield part

    def usage(self, num_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": self.num_prompt_tokens + num_tokens,
        }

    async def receives(self, count: int) -> None:
        """Return when so many answers have been asked for."""
        while len(self.asked) < count:
            self._news.clear()
            await self._news.wait()

    async def _stream(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        self.num_open += 1
        is_whole = False
        try:
            async for frame in self.answer(body, is_chat=is_chat):
                yield frame
            yield self.done
            is_whole = True
        finally:
            self.num_open -= 1
            if not is_whole:
                self.closed.set()

    async def is_asked(self, count: int) -> None:
        """Return when there have been so many requests of any kind."""
        while len(self.headers) < count:
            self._news.clear()
            await self._news.wait()

    async def _get(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        self._news.set()
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return self.unauthorized()
        if request.url.path == "/v1/models":
            return JSONResponse({"object": "list", "data": self.models()})
        return self.pages().get(request.url.path, PlainTextResponse("404 page not found", 404))

    async def _post(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        try:
            body = await request.json()
        except ClientDisconnect:
            return Response(status_code=499)
        self.asked.append(body)
        self._news.set()
        if self.refusals:
            return self.refusals.pop(0)
        is_chat = request.url.path.endswith("/chat/completions")
        refusal = self.refuse(body, is_chat=is_chat)
        if refusal is not None:
            return refusal
        return StreamingResponse(self._stream(body, is_chat=is_chat), media_type="text/event-stream")

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._post, methods=["POST"]),
                Route("/v1/completions", self._post, methods=["POST"]),
                Route("/{path:path}", self._get),
            ]
        )


def frame(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def choice(text: str | None, *, is_chat: bool, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One choice as OpenAI's API writes it."""
    said = {"delta": {"content": text}} if is_chat else {"text": text}
    return {"index": 0, **said, "logprobs": None, "finish_reason": reason, **more}


@asynccontextmanager
async def running(server: RemoteServer, port: int = 0) -> AsyncIterator[str]:
    """Its address, until the block ends; connections are cut then."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        config = uvicorn.Config(server.app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0)
        web = ListeningServer(config)
        task = asyncio.create_task(web.serve([listener]))
        await web.listening.wait()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            web.should_exit = True
            await task
