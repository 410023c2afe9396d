"""Races over HTTP.

    POST   /workloads/races              {"workload": {…}, "entries": [{"backend", "mode"?}],
                                          "together"?, "visitor"?}
                                         → 202 {"race_id"}
    GET    /workloads/races/{id}         → the workload, how far each engine is, the results so far
    GET    /workloads/races/{id}/events?since=<version>
                                         → how far it is, as soon as that is news (a long poll)
    DELETE /workloads/races/{id}         → stops it; its requests are aborted
    GET    /workloads/options            → the engines and their modes, and how large a workload may be

A race's id cannot be guessed. Results carry counts and times, never a word of a prompt. Without the
instructor key, where there is one, only small workloads run. A race ends when its visitor has gone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from backends import admission
from backends.api.body import VisitorId, json_route
from backends.api.control import check_key
from backends.api.disconnect import unless_gone
from backends.api.share import share_of
from backends.base import Backend
from backends.errors import InvalidRequest, NotAllowed
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from backends.workloads.limits import Limits, check_workload, limits_of
from backends.workloads.race import MOST_ENTRIES, Race
from backends.workloads.races import Races
from backends.workloads.workload import Workload

LONGEST_POLL = 20.0
"""Seconds without news after which the same version is answered once more."""
FIELD = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)


class EntryBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    backend: str
    mode: str | None = None


class RaceBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    workload: dict[str, Any]
    entries: Annotated[list[EntryBody], Field(min_length=1, max_length=MOST_ENTRIES)]
    together: bool = False
    """All engines at once, rather than one after another."""
    visitor: VisitorId | None = None


def create_router(registry: Registry, settings: Settings, races: Races, visitors: Visitors) -> APIRouter:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await races.close()

    router = APIRouter(route_class=json_route(), tags=["workloads"], lifespan=lifespan)
    largest = limits_of(settings, may_control=True)

    def limits_for(request: Request) -> Limits:
        return limits_of(settings, may_control=_may_control(settings, request))

    @router.get("/workloads/options")
    async def options(request: Request) -> Response:
        """For whoever asks, with the key they send; ``limited`` where the key would allow more."""
        infos = [engine.info for engine in registry]
        engines = [{"backend": info.name, "title": info.title, "modes": info.modes} for info in infos]
        limits = limits_for(request)
        return JSONResponse(
            {"engines": engines, "limits": msgspec.to_builtins(limits), "limited": limits != largest}
        )

    @router.post("/workloads/races", status_code=202)
    async def begin(request: Request, body: RaceBody) -> Response:
        """429 where too many wait, or this visitor has a race already; 401 where it needs the key."""
        workload = _workload(body.workload)
        check_workload(workload, limits_for(request), largest)
        entries = _entries(registry, body.entries)
        with ExitStack() as until_begun:
            share = until_begun.enter_context(share_of(request, visitors, settings))
            share.take_run(workload.students * (len(entries) if body.together else 1))
            race_id = races.begin(workload, entries, body.visitor, together=body.together, on_end=share.close)
            until_begun.pop_all()
        return JSONResponse({"race_id": race_id}, status_code=202)

    @router.get("/workloads/races/{race_id}")
    async def race(race_id: str) -> Response:
        """Everything known of it."""
        return JSONResponse(_everything(races.get(race_id)))

    @router.get("/workloads/races/{race_id}/events")
    async def events(request: Request, race_id: str, since: Annotated[int, Query(ge=-1)] = -1) -> Response:
        """Answers at once where the version is another, else when it is."""
        race = races.get(race_id)
        with suppress(TimeoutError):
            await unless_gone(request, asyncio.wait_for(race.wait_beyond(since), LONGEST_POLL))
        return JSONResponse(msgspec.to_builtins(race.progress()))

    @router.delete("/workloads/races/{race_id}")
    async def stop(race_id: str) -> Response:
        """What came of it until then."""
        race = races.get(race_id)
        await races.stop(race)
        return JSONResponse(_everything(race))

    return router


def _may_control(settings: Settings, request: Request) -> bool:
    """A wrong key is an error; none is only less. Raises ``NotAllowed``."""
    authorization = request.headers.get("authorization")
    try:
        check_key(settings, authorization)
    except NotAllowed:
        if authorization is not None and settings.instructor_key is not None:
            raise
        return False
    return True


def _entries(registry: Registry, bodies: Sequence[EntryBody]) -> list[tuple[Backend, str | None]]:
    """Raises ``UnknownBackend``, or ``InvalidRequest`` for a mode that there is not."""
    entries = []
    for body in bodies:
        engine = registry.get(body.backend)
        modes = engine.info.modes
        admission.check_mode(engine.info, body.mode, field="entries.mode")
        entry = engine, body.mode or (modes[0] if modes else None)
        if entry in entries:
            raise InvalidRequest(f"{engine.info.title} is in the race twice.", field="entries")
        entries.append(entry)
    return entries


def _workload(given: dict[str, Any]) -> Workload:
    """Raises ``RequestValidationError`` naming the field, as for every other body."""
    try:
        return msgspec.convert(given, Workload)
    except msgspec.ValidationError as error:
        match = FIELD.fullmatch(str(error))
        assert match is not None
        names = [name for name in re.split(r"[.\[\]]+", match["path"] or "") if name not in ("", "...")]
        value = given.get(names[0]) if names else given
        problem = {
            "loc": ("body", "workload", *names),
            "msg": match["problem"].replace("`", ""),
            "type": "value_error",
            "input": value,
        }
        raise RequestValidationError([problem]) from None


def _everything(race: Race) -> dict[str, Any]:
    everything: dict[str, Any] = msgspec.to_builtins(race.progress())
    everything["workload"] = msgspec.to_builtins(race.workload)
    for told, entry in zip(everything["entries"], race.entries, strict=True):
        told["result"] = msgspec.to_builtins(entry.result)
    return everything
