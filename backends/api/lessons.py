"""Lessons, and their experiments.

    GET    /lessons?lang=en         → {"lessons": [{slug, number, title, needs, missing}]}
    GET    /lessons/{slug}?lang=en  → the text as HTML, the prediction to make, the words of its values
    POST   /lessons/{slug}/runs     {"visitor": id} → server-sent events: ``run`` (its id), ``progress`` …,
                                    then ``outcome``, or ``error``
    DELETE /lessons/runs/{id}       stops it; so does closing the connection

A run is a private engine: few at a time, one a visitor, 429 with ``Retry-After`` beyond.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from backends.api.body import VisitorId, json_route
from backends.api.errors import error_body
from backends.api.in_process import in_process_post
from backends.api.sse import EventStream, sse_frame
from backends.errors import EngineUnavailable, ServescopeError
from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.ground import Ground, MakeEngine, Progress
from backends.lessons.lesson import Lesson, read_lesson, render, slugs
from backends.lessons.runs import LessonRun, LessonRuns
from backends.records import State
from backends.registry import Registry
from backends.settings import Settings


class RunBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    visitor: VisitorId


class UnknownRun(ServescopeError):
    """No experiment of that id is under way."""

    status = 404
    code = "unknown_run"


def create_router(registry: Registry, settings: Settings, make_engine: MakeEngine) -> APIRouter:
    runs = LessonRuns(lambda report: Ground(make_engine, report, in_process_post(settings)))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await runs.close()

    router = APIRouter(route_class=json_route(), tags=["lessons"], lifespan=lifespan)

    # Not coroutines: they read files, which the event loop must not wait for.

    @router.get("/lessons")
    def lessons(lang: str = "en") -> Response:
        """Those there are in every language, in order."""
        listed = [_summary(read_lesson(slug, lang), registry) for slug in slugs()]
        return JSONResponse({"lessons": listed})

    @router.get("/lessons/{slug}")
    def lesson(slug: str, lang: str = "en") -> Response:
        found = read_lesson(slug, lang)
        fields = msgspec.to_builtins(found)
        del fields["text"], fields["experiment"]
        return JSONResponse({**fields, **_summary(found, registry), "html": render(found.text)})

    @router.post("/lessons/{slug}/runs", response_class=StreamingResponse)
    async def run(slug: str, body: RunBody) -> Response:
        """404, 429 or 503 before anything starts; an ``error`` event for what goes wrong later."""
        found = read_lesson(slug, "en")
        if (missing := missing_for(found, registry)) is not None:
            raise EngineUnavailable(missing)
        run = runs.begin(EXPERIMENTS[found.experiment], body.visitor)
        return EventStream(_frames(run), run.stop)  # it lives as long as somebody reads it

    @router.delete("/lessons/runs/{run_id}")
    async def stop(run_id: str) -> Response:
        """Returns when its engines are gone."""
        if not await runs.stop(run_id):
            raise UnknownRun("No experiment of that id is under way.", field="run_id")
        return Response(status_code=204)

    return router


def missing_for(lesson: Lesson, registry: Registry) -> str | None:
    """Why its experiment cannot run here; ``None`` where it can, as far as is known."""
    for name in lesson.needs:
        if name not in registry.names:
            return f"It needs the engine {name}, which this server does not offer (--backends)."
        state = registry.get(name).state
        if state.state is State.UNAVAILABLE:
            return f"It needs the engine {name}, which cannot run here: {state.reason}"
    return None


def _summary(lesson: Lesson, registry: Registry) -> dict[str, Any]:
    return {
        "slug": lesson.slug,
        "number": lesson.number,
        "title": lesson.title,
        "needs": lesson.needs,
        "missing": missing_for(lesson, registry),
    }


async def _frames(run: LessonRun) -> AsyncIterator[str]:
    yield _event("run", {"run": run.run_id})
    try:
        async with aclosing(run.events()) as events:
            async for event in events:
                name = "progress" if isinstance(event, Progress) else "outcome"
                yield _event(name, msgspec.to_builtins(event))
    except ServescopeError as error:
        yield _event("error", error_body(error))


def _event(name: str, data: object) -> str:
    return f"event: {name}\n{sse_frame(data)}"
