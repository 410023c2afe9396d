"""Is the server alive, and what are its engines doing: ``GET /health`` and ``GET /metrics``."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from backends.api.feed import Hub
from backends.api.problems import problems_of, record_problem
from backends.api.prometheus import PrometheusMetrics
from backends.archive import Archive
from backends.base import Backend
from backends.registry import Registry

SHOWN_PACKAGES = ("fastapi", "uvicorn", "gradio")


def create_router(
    registry: Registry, hub: Hub, metrics: PrometheusMetrics, archive: Archive | None = None
) -> APIRouter:
    router = APIRouter(tags=["health"])
    versions = {"python": platform.python_version()} | {name: version(name) for name in SHOWN_PACKAGES}

    @router.get("/health")
    async def health() -> Response:
        """200 while this process lives, whatever the engines do; ``problems`` names what is wrong."""
        backends = {
            backend.info.name: _describe(backend, hub.feeds[backend.info.name].num_viewers)
            | {"record_problem": record_problem(backend, archive)}
            for backend in registry
        }
        problems = list(problems_of(registry, hub, archive))
        return JSONResponse(
            {
                "status": "degraded" if problems else "ok",
                "problems": msgspec.to_builtins(problems),
                "default": registry.default if registry.names else None,
                "backends": backends,
                "versions": versions,
            }
        )

    @router.get("/metrics")
    async def prometheus() -> Response:
        """Text for Prometheus; every metric has the label ``backend``."""
        wrong = [problem.backend for problem in problems_of(registry, hub, archive) if problem.backend]
        return Response(metrics.render(hub.feeds, wrong), media_type=CONTENT_TYPE_LATEST)

    return router


def _describe(backend: Backend, num_viewers: int) -> dict[str, Any]:
    """One engine. What it runs on is known once it has started."""
    state, header = backend.state, backend.recorder.header
    return {
        "title": backend.info.title,
        "state": state.state,
        "reason": state.reason,
        "progress": state.progress,
        "step_delay": state.step_delay,
        "controls": sorted(backend.info.controls),
        "viewers": num_viewers,
        "model": None if header is None else header.model,
        "device": None if header is None else header.device,
        "dtype": None if header is None else header.dtype,
        "versions": None if header is None else header.versions,
    }
