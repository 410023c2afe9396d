"""What holds for every route, the page's own with them: a body is bounded, a browser guesses nothing, and how
it was answered is told.

Routes of ours refuse a body earlier and in the words of their field (``backends/api/body.py``). Those that
come with Gradio read whatever is sent; here it ends.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backends.api.errors import BodyTooLarge, error_body

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


OnAnswer = Callable[[str, str, int], None]
"""Called with the method, the route as it was declared (empty where none fits), and the status."""
FAILED = 500
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A method may be any word; those that are none of these are told as one."""


class Guard:
    """ASGI middleware. WebSockets pass: ``app.py::server_config`` bounds their messages."""

    def __init__(self, app: ASGIApp, largest_body: int, on_answer: OnAnswer) -> None:
        self._app = app
        self._largest_body = largest_body
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._largest_body, self._on_answer)
        if exchange.declared > self._largest_body:
            await exchange.refuse()
            return
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # whoever called us answers it
            exchange.tell(FAILED)
            raise


class _Exchange:
    """One request and its response."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, largest_body: int, on_answer: OnAnswer
    ) -> None:
        length = Headers(scope=scope).get("content-length", "")
        self.declared = int(length) if length.isdecimal() else 0
        self._scope = scope
        self._receive = receive
        self._send = send
        self._largest_body = largest_body
        self._on_answer = on_answer
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
            self.tell(message["status"])
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def refuse(self) -> None:
        error = BodyTooLarge(f"The body is larger than {self._largest_body:,} bytes, which is the limit.")
        response = JSONResponse(error_body(error), error.status, {"Connection": "close", **HEADERS})
        self.tell(error.status)
        await response(self._scope, self._receive, self._send)
        self._refused = True

    def tell(self, status: int) -> None:
        """Once, as the response begins: by then it is known which route it was."""
        if not self._started:
            self._started = True
            route = getattr(self._scope.get("route"), "path", "")
            method = self._scope["method"]
            self._on_answer(method if method in METHODS else "other", route, status)
