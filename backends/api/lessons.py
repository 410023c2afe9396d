"""Lessons, and their experiments.

    GET    /lessons?lang=en          → {"lessons": [{slug, number, title, missing}]}
    GET    /lessons/{slug}?lang=en   → the texts as HTML, the prediction to make, the words of its values
    POST   /lessons/{slug}/runs      {"visitor": id, "engine"?: name} → server-sent events: ``run`` (its id),
                                     ``progress`` …, then ``outcome``, or ``error``
    DELETE /lessons/runs/{id}        stops it; so does closing the connection
    GET    /lessons/runs/{id}/trace?engine=0   what its first engine recorded, as JSON lines

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
from backends.api.share import callers_share
from backends.api.sse import EventStream, sse_frame
from backends.errors import EngineUnavailable, InvalidRequest, ServescopeError
from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.ground import Ground, MakeEngine, Progress
from backends.lessons.lesson import Lesson, read_lesson, render, slugs
from backends.lessons.runs import LessonRun, LessonRuns
from backends.records import State
from backends.registry import Registry
from backends.settings import Settings
from backends.shelf import Recording, Shelf
from backends.visitors import Share, Visitors


class RunBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    visitor: VisitorId
    engine: str | None = None
    """Where a lesson leaves a choice (``Lesson.instead``)."""


def create_router(
    registry: Registry, settings: Settings, make_engine: MakeEngine, shelf: Shelf, visitors: Visitors
) -> APIRouter:
    callers = callers_share(visitors, settings)
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
        for name in ("text", "after", "experiment", "instead", "needs"):
            del fields[name]
        texts = {"html": render(found.text), "after_html": render(found.after)}
        choice = [_engine(name, registry) for name in engine_choice(found, registry)]
        recordings = [_recording(one) for one in recordings_for(found, registry, shelf)]
        more = {"engine_choice": choice, "recordings": recordings}
        return JSONResponse({**fields, **texts, **_summary(found, registry), **more})

    @router.post("/lessons/{slug}/runs", response_class=StreamingResponse)
    async def run(slug: str, body: RunBody, share: Share = callers) -> Response:
        """400, 404, 429 or 503 before anything starts; an ``error`` event for what goes wrong later."""
        found = read_lesson(slug, "en")
        if (missing := missing_for(found, registry)) is not None:
            raise EngineUnavailable(missing)
        share.take_run()
        run = runs.begin(EXPERIMENTS[experiment_of(found, body.engine, registry)], body.visitor)
        return EventStream(_frames(run), run.stop)  # it lives as long as somebody reads it

    @router.delete("/lessons/runs/{run_id}")
    async def stop(run_id: str) -> Response:
        """Returns when its engines are gone."""
        await runs.stop(run_id)
        return Response(status_code=204)

    @router.get("/lessons/runs/{run_id}/trace")
    async def trace(run_id: str, engine: int = 0) -> Response:
        """A file to keep, for whoever knows the run's id."""
        traces = runs.traces(run_id)
        if not 0 <= engine < len(traces):
            raise InvalidRequest(
                f"engine is {engine}; this run had {len(traces)}, counted from 0.", field="engine"
            )
        file_name = f"lesson-{engine}-{traces[engine].engine}.trace.jsonl"
        return Response(
            traces[engine].lines,
            media_type="application/x-ndjson",
            headers={"Content-Disposition": f'attachment; filename="{file_name}"'},
        )

    return router


def missing_for(lesson: Lesson, registry: Registry) -> str | None:
    """Why its experiment cannot run here; ``None`` where it can, as far as is known."""
    if any(_why_not(name, registry) is None for name in lesson.instead):
        return None
    return next(filter(None, (_why_not(name, registry) for name in lesson.needs)), None)


def recordings_for(lesson: Lesson, registry: Registry, shelf: Shelf) -> list[Recording]:
    """Shipped ones to look at instead, where it cannot run here, or not on the engine that is usual."""
    if missing_for(lesson, registry) is None and not any(_why_not(name, registry) for name in lesson.instead):
        return []
    shipped = {recording.name: recording for recording in shelf.all() if recording.is_shipped}
    return [shipped[name] for name in lesson.recordings if name in shipped]


def engine_choice(lesson: Lesson, registry: Registry) -> list[str]:
    """Engines of which the visitor can choose one, the usual first; none where there is no choice."""
    names = [*lesson.instead, *lesson.needs] if lesson.instead else []
    return [name for name in names if _why_not(name, registry) is None]


def experiment_of(lesson: Lesson, engine: str | None, registry: Registry) -> str:
    """Its name. Raises ``InvalidRequest`` for an engine that is not to be chosen."""
    choice = engine_choice(lesson, registry)
    if engine is not None and engine not in choice:
        there_are = f"it must be one of {', '.join(choice)}" if choice else "this lesson leaves no choice"
        raise InvalidRequest(f"engine is {engine!r}; {there_are}.", field="engine")
    chosen = engine if engine is not None else next(iter(choice), "")
    return lesson.instead.get(chosen, lesson.experiment)


def _why_not(name: str, registry: Registry) -> str | None:
    """Why nothing can run on this engine here; ``None`` where it can, as far as is known."""
    if name not in registry.names:
        return f"It needs the engine {name}, which this server does not offer (--backends)."
    state = registry.get(name).state
    if state.state is State.UNAVAILABLE:
        return f"It needs the engine {name}, which cannot run here: {state.reason}"
    return None


def _engine(name: str, registry: Registry) -> dict[str, str]:
    return {"name": name, "title": registry.get(name).info.title}


def _recording(recording: Recording) -> dict[str, str]:
    header = recording.survey.header
    return {"name": recording.name, "backend": header.backend, "hardware": header.hardware}


def _summary(lesson: Lesson, registry: Registry) -> dict[str, Any]:
    return {
        "slug": lesson.slug,
        "number": lesson.number,
        "title": lesson.title,
        "missing": missing_for(lesson, registry),
    }


async def _frames(run: LessonRun) -> AsyncIterator[str]:
    yield _event("run", {"run": run.run_id})
    try:
        async with aclosing(run.events()) as events:
            async for event in events:
                if isinstance(event, Progress):
                    yield _event("progress", msgspec.to_builtins(event))
                else:
                    ran_on = [trace.engine for trace in run.traces]
                    yield _event("outcome", {**msgspec.to_builtins(event), "engines": ran_on})
    except ServescopeError as error:
        yield _event("error", error_body(error))


def _event(name: str, data: object) -> str:
    return f"event: {name}\n{sse_frame(data)}"
