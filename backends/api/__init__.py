"""Everything the server offers over HTTP and WebSocket but the page itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI

from backends.api import (
    code,
    control,
    generate_vllm,
    health,
    join,
    lessons,
    openai,
    sizing,
    teaching,
    telemetry,
    traces,
    workloads,
)
from backends.api.body import CUT_OFF, largest_body
from backends.api.errors import add_error_handlers
from backends.api.event_log import EventLog
from backends.api.feed import Hub
from backends.api.guard import Guard
from backends.api.presence import GRACE, Presence
from backends.api.prometheus import PrometheusMetrics
from backends.archive import Archive
from backends.errors import ServescopeError
from backends.lessons.ground import MakeEngine
from backends.records import AnyRecord
from backends.registry import Registry
from backends.settings import Settings
from backends.shelf import Shelf
from backends.visitors import Visitors
from backends.workloads.races import Races


@dataclass(frozen=True)
class Observation:
    """What happens beside the routes, for the log and ``/metrics`` to hear of."""

    count_the_rest: Callable[[], None]
    """Counts and logs the last records; to be called once the engines have stopped."""
    chat_failed: Callable[[str, str | None, ServescopeError], None]
    """To be called for a chat of the page that ended with an error, refused or failed: with the backend
    (empty where it is none of this server's), the request's id if it got one, and the error."""


def include_routes(
    app: FastAPI,
    registry: Registry,
    settings: Settings,
    *,
    make_engine: MakeEngine,
    visitor_grace: float = GRACE,
    shelf: Shelf | None = None,
    archive: Archive | None = None,
    visitors: Visitors | None = None,
) -> Observation:
    """Add all routes and error handlers; the feeds run as long as the app's lifespan.

    ``make_engine``: builds the private engines of experiments.
    ``visitor_grace``: seconds after which the requests of a visitor who has left are aborted.
    ``archive``: where records are being written, for ``/health`` to tell.
    ``shelf``: the recordings to offer, else those that come with the app.
    ``visitors``: what each of them has in flight, where the page counts too.
    """
    shelf = shelf or Shelf()
    visitors = visitors or Visitors(settings)
    log = EventLog()
    metrics = PrometheusMetrics(on_end=log.ended)

    def observe(backend: str, record: AnyRecord) -> None:
        log.observe(backend, record)
        metrics.observe(backend, record)

    def on_answer(method: str, route: str, status: int) -> None:
        log.answered(method, route, status)
        metrics.answered(method, route, status)

    def chat_failed(backend: str, request_id: str | None, error: ServescopeError) -> None:
        log.chat_failed(backend, request_id, error)
        metrics.chat_failed(backend, error)

    hub = Hub(registry, observe)
    races = Races()
    presence = Presence(races, registry, grace=visitor_grace)
    add_error_handlers(app)
    app.add_middleware(
        Guard, largest_body=CUT_OFF * largest_body(settings.max_model_len), on_answer=on_answer
    )
    app.include_router(teaching.create_router(registry, settings, visitors))
    app.include_router(generate_vllm.create_router(registry, settings, visitors))
    app.include_router(openai.create_router(registry, settings, visitors))
    app.include_router(telemetry.create_router(registry, hub, presence))
    app.include_router(control.create_router(registry, settings))
    app.include_router(health.create_router(registry, hub, metrics, archive))
    app.include_router(code.create_router())
    app.include_router(sizing.create_router(registry, settings))
    app.include_router(workloads.create_router(registry, settings, races, visitors))
    app.include_router(join.create_router(settings))
    app.include_router(traces.create_router(shelf))
    app.include_router(lessons.create_router(registry, settings, make_engine, shelf, visitors))
    return Observation(hub.advance, chat_failed)
