"""Server-sent events: how one is written, and a response that tells when nobody reads any more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """Calls ``close`` however it ends, even when the client goes before the first frame."""

    def __init__(self, frames: AsyncIterator[str], close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=STREAM_HEADERS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()


def sse_frame(data: object) -> str:
    """One server-sent event. Text stays readable, but for the line ends of Unicode that a simple
    client would split at."""
    text = json.dumps(data, ensure_ascii=False)
    for line_end in ("\x85", "\u2028", "\u2029"):
        text = text.replace(line_end, f"\\u{ord(line_end):04x}")
    return f"data: {text}\n\n"
