"""Errors → responses in plain words: ``{"error": {"code", "message", "field"}}``.

What FastAPI finds wrong with types stays a 422 with its ``detail`` list (``loc``, ``msg``,
``type``); the input is not echoed there, since it may be what JSON cannot carry (NaN, half a
surrogate pair).
"""

from __future__ import annotations

import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from backends.api.disconnect import ClientGone
from backends.errors import NotAllowed, Overloaded, ServescopeError

CLIENT_GONE = 499
"""Nobody reads it; it is what logs show."""
LONGEST_ECHO = 60
"""Characters of a wrong value that an error repeats."""


class BodyTooLarge(ServescopeError):
    """The body of a request exceeds the limit."""

    status = 413
    code = "body_too_large"


class NotJson(ServescopeError):
    """The body is not declared as JSON."""

    status = 415
    code = "not_json"


class CrossOrigin(ServescopeError):
    """Another site's page tried to control an engine."""

    status = 403
    code = "cross_origin"


class UnknownAction(ServescopeError):
    """No control action of that name."""

    status = 404
    code = "unknown_action"


def error_body(error: ServescopeError) -> dict[str, dict[str, str | None]]:
    """The one shape of an error, in a response and in a stream."""
    return {"error": {"code": error.code, "message": error.message, "field": error.field}}


def add_error_handlers(app: FastAPI) -> None:
    """Give every error of ours, and every wrong type, its response."""
    app.add_exception_handler(ServescopeError, _respond)
    app.add_exception_handler(RequestValidationError, _respond_to_wrong_types)
    app.add_exception_handler(ClientGone, _respond_to_nobody)


async def _respond(_: Request, error: Exception) -> Response:
    assert isinstance(error, ServescopeError)
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if isinstance(error, NotAllowed):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, BodyTooLarge):
        headers["Connection"] = "close"  # the rest of the body is not wanted
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


async def _respond_to_nobody(_: Request, error: Exception) -> Response:
    assert isinstance(error, ClientGone)
    return Response(status_code=CLIENT_GONE)


async def _respond_to_wrong_types(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    detail = [_describe(problem) for problem in error.errors()]
    message = "; ".join(f"{_path(problem['loc'])}: {problem['msg']}" for problem in detail)
    field = _path(detail[0]["loc"]) if detail else None
    body = {"error": {"code": "invalid_request", "message": message, "field": field}, "detail": detail}
    return JSONResponse(body, status_code=422)


def _describe(problem: dict[str, Any]) -> dict[str, Any]:
    message = str(problem["msg"])
    if problem["type"] == "json_invalid":
        message = f"not valid JSON: {problem.get('ctx', {}).get('error', message)}"
    elif problem["type"] not in ("missing", "model_attributes_type"):
        message = f"{message} (got {_echo(problem.get('input'))})"
    return {"loc": list(problem["loc"]), "msg": message, "type": problem["type"]}


def _echo(value: object) -> str:
    """A wrong value as ASCII, cut short."""
    text = ascii(value)
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"


def _path(loc: list[str | int]) -> str:
    """``["body", "prompt"]`` → ``prompt``; ``["body", 17]`` → ``body, position 17``."""
    inner = loc[1:]
    if not inner:
        return "body"
    if isinstance(inner[0], int):
        return f"body, position {inner[0]}"
    return ".".join(str(part) for part in inner)
