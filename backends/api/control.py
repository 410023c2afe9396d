"""Pause, resume, single step, slow motion, restart, and killing the worker.

    POST /control/{backend}/{pause|resume|step|speed|restart|kill-worker}  → {"state": "paused"}

``speed`` has the body ``{"step_delay": seconds}``. Where the server has an instructor key, it must
come as a bearer token. Pages of other sites are refused: a browser sends their ``Origin``.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from backends.api.body import json_route
from backends.api.errors import CrossOrigin, UnknownAction
from backends.base import ControlAction
from backends.errors import InvalidRequest, NotAllowed
from backends.registry import Registry
from backends.settings import Settings


class ControlBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    step_delay: float | None = None


class Controlled(BaseModel):
    state: str


def create_router(registry: Registry, settings: Settings) -> APIRouter:
    router = APIRouter(route_class=json_route(), tags=["control"])

    @router.post("/control/{backend}/{action}", response_model=Controlled)
    async def control(
        request: Request, backend: str, action: str, body: ControlBody | None = None
    ) -> Response:
        """Returns the state after the action; 409 when there is nothing to step."""
        _check_origin(request)
        check_key(settings, request.headers.get("authorization"))
        engine = registry.get(backend)
        chosen = _action(action)
        await engine.control(chosen, _value(chosen, body))
        return JSONResponse({"state": engine.state.state})

    return router


def check_key(settings: Settings, authorization: str | None) -> None:
    """Raises ``NotAllowed`` unless the header carries the instructor key, or none is needed."""
    if settings.instructor_key is None:
        if settings.public or not settings.is_loopback:
            raise NotAllowed("Control is closed: this server has no instructor key.")
        return
    if not holds_key(settings, authorization):
        problem = "wrong" if _bearer(authorization) else "missing"
        raise NotAllowed(
            f"Control needs the instructor key, and it is {problem}: Authorization: Bearer <key>."
        )


def holds_key(settings: Settings, authorization: str | None) -> bool:
    """Whether the header carries the instructor key. Clients of other servers send keys of their own."""
    key = settings.instructor_key
    return key is not None and hmac.compare_digest(_bearer(authorization).encode(), key.encode())


def _bearer(authorization: str | None) -> str:
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _check_origin(request: Request) -> None:
    """Raises ``CrossOrigin`` for a page of another site. Behind a proxy the page's own host is in
    ``X-Forwarded-Host``, which a page of another site cannot set."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    own_hosts = {request.headers.get("host"), request.headers.get("x-forwarded-host")}
    try:
        host = urlsplit(origin).netloc
    except ValueError:  # no browser sends such a one
        host = ""
    if host not in own_hosts:
        raise CrossOrigin(f"Control from {origin} is refused: only this server's own page may.")


def _action(name: str) -> ControlAction:
    try:
        return ControlAction(name)
    except ValueError:
        raise UnknownAction(
            f"No action {name!r}. There are: {', '.join(ControlAction)}.", field="action"
        ) from None


def _value(action: ControlAction, body: ControlBody | None) -> float | None:
    step_delay = None if body is None else body.step_delay
    if action is ControlAction.SPEED and step_delay is None:
        raise InvalidRequest('speed needs a body {"step_delay": seconds}.', field="step_delay")
    if action is not ControlAction.SPEED and step_delay is not None:
        raise InvalidRequest(f"{action} takes no step_delay; only speed does.", field="step_delay")
    return step_delay
