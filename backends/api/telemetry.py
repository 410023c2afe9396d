"""The live feed over a WebSocket, and the whole trace as a file.

    WS  /telemetry?backend=naive&since=<version>&visitor=<id>   frames: JSON arrays of records
    GET /telemetry/{backend}/trace                              JSON lines, the header first;
                                                                ?packed=true is a .jsonl.gz

Ids, seats, counts and times; never text. A visitor is present while its WebSocket is open.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice

from fastapi import APIRouter, FastAPI
from fastapi.responses import StreamingResponse
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from backends.api.body import VISITOR
from backends.api.disconnect import cancel
from backends.api.feed import Hub, Viewer
from backends.api.presence import Presence
from backends.errors import InvalidRequest, ServescopeError, UnknownBackend
from backends.registry import Registry
from backends.trace import trace_lines

BAD_QUERY = 4400
UNKNOWN_BACKEND = 4404
TOO_BIG = 1009
LARGEST_MESSAGE = 1024
"""Bytes a client may send; nothing it says is needed."""
LONGEST_REASON = 123
"""Bytes that a close frame has room for."""
IS_VISITOR = re.compile(VISITOR)
TRACE_LINES_AT_ONCE = 500

logger = logging.getLogger(__name__)


def create_router(registry: Registry, hub: Hub, presence: Presence) -> APIRouter:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ticking = asyncio.create_task(hub.run())
        ticking.add_done_callback(partial(_report, hub))
        yield
        await cancel(ticking)
        await presence.close()

    router = APIRouter(tags=["telemetry"], lifespan=lifespan)

    @router.websocket("/telemetry")
    async def telemetry(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            backend, since, visitor = _parse(websocket.query_params, registry)
        except ServescopeError as error:
            code = UNKNOWN_BACKEND if isinstance(error, UnknownBackend) else BAD_QUERY
            await websocket.close(code, _reason(error.message))
            return
        feed = hub.feeds[backend]
        feed.num_viewers += 1
        if visitor is not None:
            presence.enter(visitor)
        close_code = None
        try:
            close_code = await _serve(websocket, hub, Viewer(hub, backend, since))
        finally:
            feed.num_viewers -= 1
            if visitor is not None:
                presence.leave(visitor, close_code)

    @router.get("/telemetry/{backend}/trace", response_class=StreamingResponse)
    async def trace(backend: str, packed: bool = False) -> StreamingResponse:
        """Everything retained, as a file to keep; ``packed``: as a gzip file."""
        parts = _in_parts(trace_lines(registry.get(backend).recorder))
        return StreamingResponse(
            _packed(parts) if packed else parts,
            media_type="application/gzip" if packed else "application/x-ndjson",
            headers={"Content-Disposition": f'attachment; filename="{backend}.trace.jsonl{".gz" * packed}"'},
        )

    return router


def _parse(query: QueryParams, registry: Registry) -> tuple[str, int | None, str | None]:
    """Backend, since, visitor. Raises ``UnknownBackend`` or ``InvalidRequest``."""
    backend = query.get("backend", registry.default)
    registry.get(backend)
    since, visitor = query.get("since"), query.get("visitor")
    if since is not None and not re.fullmatch(r"[0-9]{1,15}", since):
        raise InvalidRequest(
            f"since is {since!r}; it must be a version: a whole number from 0.", field="since"
        )
    if visitor is not None and not IS_VISITOR.fullmatch(visitor):
        raise InvalidRequest("visitor must be 1 to 64 letters, digits, - or _.", field="visitor")
    return backend, None if since is None else int(since), visitor


async def _serve(websocket: WebSocket, hub: Hub, viewer: Viewer) -> int | None:
    """Send frames and discard messages until the client goes, or says too much. Returns the code
    that the client closed with, where it was heard."""
    sending = asyncio.create_task(_send_frames(websocket, hub, viewer))
    reading = asyncio.create_task(_discard_messages(websocket))
    try:
        done, _ = await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(sending, reading)
    if sending in done and not isinstance(sending.exception(), WebSocketDisconnect):
        sending.result()  # raises: a client that goes is all that may end it
    if reading not in done:
        return None
    close_code = reading.result()
    if close_code == TOO_BIG:
        await websocket.close(TOO_BIG, "Nothing needs to be sent here.")
    return close_code


async def _send_frames(websocket: WebSocket, hub: Hub, viewer: Viewer) -> None:
    """Awaiting each send is the back-pressure: a frame is made when the last one has been taken."""
    while True:
        tick = hub.tick
        while (frame := viewer.next_frame()) is not None:
            await websocket.send_text(frame)
            await asyncio.sleep(0)  # a send that need not wait would not let others run
        await tick.wait()


async def _discard_messages(websocket: WebSocket) -> int:
    """Return when the client has gone, with its close code, or sent too much (``TOO_BIG``)."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return int(message.get("code", 1005))
        if len(message.get("text") or message.get("bytes") or "") > LARGEST_MESSAGE:
            return TOO_BIG


def _reason(message: str) -> str:
    """What fits into a close frame."""
    return message.encode()[:LONGEST_REASON].decode(errors="ignore")


async def _in_parts(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := b"".join(islice(lines, TRACE_LINES_AT_ONCE)):
        yield part


async def _packed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with the header of a gzip file
    async for part in parts:
        yield compressor.compress(part)
    yield compressor.flush()


def _report(hub: Hub, ticking: asyncio.Task[None]) -> None:
    """The ticker only ends with the server; if it fails, that must not go unseen."""
    if not ticking.cancelled() and ticking.exception() is not None:
        hub.has_stopped = True
        logger.error("The feeds have stopped", exc_info=ticking.exception())
