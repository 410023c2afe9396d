"""The memory calculator.

GET  /sizing                  what to begin with: models, the engines that run, this machine's memory
POST /sizing?engine=paged     a plan → {"figures", "verdict", "reported"}
POST /sizing/config           a model's config.json → its sizes
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from backends import model_config, sizing
from backends.api.body import json_route
from backends.base import Backend
from backends.registry import Registry
from backends.residency import machine_memory
from backends.settings import Settings
from backends.sizing import Plan
from backends.sizing_table import figures, reported


def create_router(registry: Registry, settings: Settings) -> APIRouter:
    router = APIRouter(route_class=json_route(), tags=["sizing"])

    @router.get("/sizing")
    async def beginnings() -> Response:
        """Examples with their sources, engines that are up and say what their model is like, and the
        memory of this machine, where it tells."""
        running = [_describe(backend, settings) for backend in registry if backend.recorder.header]
        return JSONResponse(
            {
                "models": [msgspec.to_builtins(model) for model in model_config.examples()],
                "engines": running,
                "machine": machine_memory(),
                "other_memory": Plan.model_fields["other_memory"].default,
            }
        )

    @router.post("/sizing")
    async def size(plan: Plan, engine: str | None = None) -> Response:
        """All figures of a plan with their formulas, whether vLLM starts, and what an engine that runs
        reports beside it."""
        header = None if engine is None else registry.get(engine).recorder.header
        told = (
            None if header is None else reported(plan, header, blocks_given=settings.num_blocks is not None)
        )
        return JSONResponse(
            {
                "figures": [msgspec.to_builtins(figure) for figure in figures(plan)],
                "verdict": msgspec.to_builtins(sizing.verdict(plan)),
                "reported": msgspec.to_builtins(told),
            }
        )

    @router.post("/sizing/config")
    async def read_config(config: dict[str, Any]) -> Response:
        """The sizes in a model's ``config.json``; its parameters where they follow from them."""
        return JSONResponse(msgspec.to_builtins(model_config.read_config(config)))

    return router


def _describe(backend: Backend, settings: Settings) -> dict[str, Any]:
    """What a plan can take over from an engine that runs."""
    header = backend.recorder.header
    assert header is not None
    return {
        "engine": backend.info.name,
        "title": backend.info.title,
        "model": header.model,
        "dtype": header.dtype,
        "device": header.device,
        "hardware": header.hardware,
        "shape": msgspec.to_builtins(header.shape),
        "config": msgspec.to_builtins(header.engine),
        "gpu_memory_utilization": settings.gpu_memory_utilization,
    }
