"""Errors of the ``/v1`` routes in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``.

Wrong types are a 400 there, not a 422, so that its clients raise what they document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from backends.api.body import json_route
from backends.api.errors import LONGEST_ECHO, BodyTooLarge
from backends.errors import InvalidRequest, Overloaded, ServescopeError, UnknownBackend

CHAT_PATH = "/v1/chat/completions"


class Aborted(ServescopeError):
    """Something other than its client ended the request."""

    status = 503
    code = "aborted"


def openai_route(max_model_len: int) -> type[APIRoute]:
    """``json_route``, with every error of ours and every wrong type in OpenAI's shape."""

    class OpenAIRoute(json_route(max_model_len)):  # type: ignore[misc]  # a class made by a function
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_in_shape(request: Request) -> Response:
                try:
                    response: Response = await handle(request)
                except RequestValidationError as error:
                    return _respond(_as_invalid(error))
                except HTTPException as error:  # JSON that Python's parser gives up on
                    return _respond(InvalidRequest(str(error.detail)))
                except ServescopeError as error:
                    return _respond(error, is_chat=request.url.path.endswith(CHAT_PATH))
                return response

            return handle_in_shape

    return OpenAIRoute


def openai_error(error: ServescopeError, *, is_chat: bool = False) -> dict[str, dict[str, str | None]]:
    """In a response and in a stream."""
    param, code = error.field, error.code
    if isinstance(error, UnknownBackend):
        param, code = "model", "model_not_found"
    if is_chat and param == "prompt":
        param = "messages"
    return {"error": {"message": error.message, "type": _kind(error), "param": param, "code": code}}


def _kind(error: ServescopeError) -> str:
    if isinstance(error, Overloaded):
        return "rate_limit_error"
    return "invalid_request_error" if error.status < 500 else "server_error"


def _respond(error: ServescopeError, *, is_chat: bool = False) -> Response:
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if isinstance(error, BodyTooLarge):
        headers["Connection"] = "close"  # the rest of the body is not wanted
    return JSONResponse(openai_error(error, is_chat=is_chat), status_code=error.status, headers=headers)


def _as_invalid(error: RequestValidationError) -> InvalidRequest:
    """The first thing that is wrong, with the name of its field."""
    problem = error.errors()[0]
    field = _path(problem["loc"][1:])
    message = str(problem["msg"]).removeprefix("Value error, ")
    match problem["type"]:
        case "json_invalid":
            why = problem.get("ctx", {}).get("error", message)
            return InvalidRequest(f"The body is not valid JSON at position {problem['loc'][-1]}: {why}.")
        case "extra_forbidden":
            return InvalidRequest(f"{field} is not supported here; leave it out.", field=field)
        case "missing":
            return InvalidRequest(f"{field or 'The body'} is missing.", field=field)
    got = ascii(problem.get("input"))
    got = got if len(got) <= LONGEST_ECHO else got[:LONGEST_ECHO] + "…"
    return InvalidRequest(f"{field or 'The body'}: {message} (got {got}).", field=field)


def _path(loc: tuple[str | int, ...]) -> str | None:
    """``("messages", 0, "content")`` → ``messages[0].content``."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    path = path.encode(errors="replace").decode()  # half a surrogate pair cannot be sent
    return path.removeprefix(".") or None
