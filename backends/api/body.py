"""Bodies of requests: bounded, declared as JSON, UTF-8. Checked before anything is parsed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from backends.api.disconnect import ClientGone
from backends.api.errors import BodyTooLarge, NotJson
from backends.errors import InvalidRequest

DEFAULT_LIMIT = 1024 * 1024
BYTES_PER_TOKEN = 16
"""More than a token takes in any text, so that the longest prompt always fits."""

VISITOR = r"^[A-Za-z0-9_-]{1,64}$"
VisitorId = Annotated[str, Field(pattern=VISITOR)]
"""The secret id of a page load."""

CUT_OFF = 8
"""Times the limit that a client can send before the connection is closed on it."""


def largest_body(max_model_len: int = 0) -> int:
    """Bytes: room for the longest prompt."""
    return max(DEFAULT_LIMIT, max_model_len * BYTES_PER_TOKEN)


def json_route(max_model_len: int = 0) -> type[APIRoute]:
    """A route class that refuses a body that is too large, not JSON, or not UTF-8."""
    limit = largest_body(max_model_len)

    class JsonRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_checked(request: Request) -> Response:
                body = await _read(request, limit)
                _check(request, body)
                return await handle(Request(request.scope, _replay(body, request.receive)))

            return handle_checked

    return JsonRoute


def encodable(text: str) -> str:
    r"""JSON can carry ``"\ud800"``, half a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half a surrogate pair") from None
    return text


async def _read(request: Request, limit: int) -> bytes:
    """The whole body. What exceeds the limit is read and thrown away, so that a client gets to see
    the answer; one that goes on even then is cut off. Raises ``ClientGone``."""
    body = bytearray()
    num_bytes = 0
    try:
        async for part in request.stream():
            num_bytes += len(part)
            if num_bytes <= limit:
                body += part
            elif num_bytes > limit * CUT_OFF:
                break
    except ClientDisconnect:
        raise ClientGone from None
    if num_bytes > limit:
        raise BodyTooLarge(f"The body has {num_bytes:,} bytes or more; the limit is {limit:,}.")
    return bytes(body)


def _check(request: Request, body: bytes) -> None:
    if not body:
        return
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        shown = content_type or "no content type"
        raise NotJson(f"The body must be JSON: send the header Content-Type: application/json (got {shown}).")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The body is not UTF-8: byte {error.start} is {body[error.start]:#04x}."
        ) from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once more, in one message; then whatever really comes, such as a disconnect."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
