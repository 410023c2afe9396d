"""A server that answers with whatever bytes a test wants, well-formed or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes the answer to a POST; the connection is closed when it returns."""

MODELS = b'{"object": "list", "data": [{"id": "raw-model", "object": "model"}]}'
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def page(
    body: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json", more: bytes = b""
) -> bytes:
    length = str(len(body)).encode()
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %b\r\nConnection: close\r\n%b\r\n%b" % (
        status,
        kind,
        length,
        more,
        body,
    )


def sending(*parts: bytes) -> Script:
    """Write these one after the other, and close."""

    async def script(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return script


async def silent(writer: asyncio.StreamWriter) -> None:
    """Take the request and do nothing."""
    await asyncio.Event().wait()


GOOD_LISTING = sending(page(MODELS))


@asynccontextmanager
async def raw_server(script: Script, *, listing: Script = GOOD_LISTING) -> AsyncIterator[str]:
    """Its address. ``listing`` answers ``GET /v1/models``."""
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST"):
                    await script(writer)
                elif head.startswith(b"GET /v1/models"):
                    await listing(writer)
                else:
                    writer.write(page(b"none here", b"404 Not Found", b"text/plain"))
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
