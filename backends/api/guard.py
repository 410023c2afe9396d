"""What holds for every route, the page's own with them: a body is bounded, and a browser guesses nothing.

Routes of ours refuse a body earlier and in the words of their field (``backends/api/body.py``). Those that
come with Gradio read whatever is sent; here it ends.
"""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backends.api.errors import BodyTooLarge, error_body

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware. WebSockets pass: ``app.py::server_config`` bounds their messages."""

    def __init__(self, app: ASGIApp, largest_body: int) -> None:
        self._app = app
        self._largest_body = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._largest_body)
        if exchange.declared > self._largest_body:
            await exchange.refuse()
        else:
            await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, largest_body: int) -> None:
        length = Headers(scope=scope).get("content-length", "")
        self.declared = int(length) if length.isdecimal() else 0
        self._scope = scope
        self._receive = receive
        self._send = send
        self._largest_body = largest_body
        self._num_bytes = 0
        self._started = False
        self._refused = False

    async def receive(self) -> Message:
        """What comes, until it is too much: then the request is answered, and the route told that nobody
        is there any more."""
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes <= self._largest_body:
            return message
        if not self._started:
            await self.refuse()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self._started = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def refuse(self) -> None:
        error = BodyTooLarge(f"The body is larger than {self._largest_body:,} bytes, which is the limit.")
        response = JSONResponse(error_body(error), error.status, {"Connection": "close", **HEADERS})
        await response(self._scope, self._receive, self._send)
        self._refused = True
