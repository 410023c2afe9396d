"""Serves the panels over scripted engines: ``python -m tests.js.harness.serve [--port 0]``.

``/?backend=<scene>`` is a bare page; every scene of ``scenarios.SCENES`` is a backend, ``live-…``
plays it at its own pace, and there is one for each state an engine can be in.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from backends.api import include_routes
from backends.records import EngineConfig, Exposure, State
from backends.registry import Registry
from backends.settings import Settings
from components.static import add_static_routes
from tests.fakes import make_fake
from tests.js.harness.remote_scenes import remote
from tests.js.harness.scenarios import SCENES, header
from tests.js.harness.scripted_engine import ScriptedEngine

PAGE = Path(__file__).parent / "index.html"


def engines() -> dict[str, ScriptedEngine]:
    made = {name: ScriptedEngine(name, scene()) for name, scene in SCENES.items()}
    made |= {
        f"half-{name}": ScriptedEngine(f"half-{name}", scene(), share=0.55) for name, scene in SCENES.items()
    }
    made |= {
        f"live-{name}": ScriptedEngine(f"live-{name}", scene(), share=0.2) for name, scene in SCENES.items()
    }
    made["remote"] = ScriptedEngine("remote", remote())
    made["remotes"] = ScriptedEngine("remotes", remote(num_servers=3))
    opening = header("ready", EngineConfig(max_model_len=1024, batch_size=4), Exposure.DERIVED)
    made["ready"] = ScriptedEngine("ready", [opening])
    made["idle"] = ScriptedEngine("idle", [], state=State.IDLE)
    made["starting"] = ScriptedEngine(
        "starting", [], state=State.STARTING, reason="loading weights", progress=0.4
    )
    made["crashed"] = ScriptedEngine("crashed", SCENES["pair"](), share=0.6)
    made["crashed"]._reason = "the worker process ended with signal 9"
    made["crashed"]._say(State.CRASHED)
    made["unavailable"] = ScriptedEngine(
        "unavailable", [], state=State.UNAVAILABLE, reason="the package vllm is not installed"
    )
    return made


def create_app(settings: Settings) -> FastAPI:
    made = engines()
    for name in ("half-naive", "half-paged"):
        made[name].gate.pause()
        made[name]._say(State.PAUSED)
    registry = Registry({name: lambda engine=engine: engine for name, engine in made.items()})

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.gather(*(engine.start() for name, engine in made.items() if name.startswith("live-")))
        yield
        await registry.stop()

    app = FastAPI(lifespan=lifespan)
    include_routes(app, registry, settings, make_engine=make_fake)
    add_static_routes(app)

    @app.get("/")
    async def index() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7999)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    settings = Settings(instructor_key=arguments.key)
    uvicorn.run(create_app(settings), host="127.0.0.1", port=arguments.port, log_level="warning")
