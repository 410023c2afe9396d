"""A route of this server asked without a socket: what it sends, byte for byte, in its own pieces."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Scope

from backends.api import teaching
from backends.api.errors import add_error_handlers
from backends.base import Backend
from backends.lessons.ground import Post
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors


def in_process_post(settings: Settings) -> Post:
    """Posts to the teaching routes; ``settings`` are the limits that they hold to."""

    nobody_else = Visitors(settings.model_copy(update={"public": False}))

    async def post(engine: Backend, path: str, body: dict[str, Any]) -> list[bytes]:
        app = FastAPI()
        add_error_handlers(app)
        registry = Registry({engine.info.name: lambda: engine})
        app.include_router(teaching.create_router(registry, settings, nobody_else))
        client = _Client(json.dumps(body).encode())
        await app(_scope(path), client.receive, client.send)
        return client.parts

    return post


class _Client:
    """Sends one body, stays until the end, and keeps what comes."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.parts: list[bytes] = []

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # it never leaves
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            self.parts.append(bytes(message["body"]))


def _scope(path: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }
