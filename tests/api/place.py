"""The whole server, the page with it, as ``app.py`` serves it, over scripted engines."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

from gradio.routes import App

from app import create_app, server_config
from backends.registry import Registry
from backends.settings import Settings
from tests.fakes import FakeBackend
from tests.listening import ListeningServer


@dataclass
class Place:
    """Where it is, and what it offers."""

    address: str
    routes: list[tuple[str, str]]
    """Method and path of each, Gradio's with them."""
    page: App
    """Gradio's part of it."""

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{self.address}", timeout=20, trust_env=False)


@asynccontextmanager
async def place(settings: Settings, *backends: FakeBackend) -> AsyncIterator[Place]:
    """Serve these engines, the page among the routes, until the block ends."""
    engines = {backend.info.name: backend for backend in backends}
    registry = Registry({name: lambda engine=engine: engine for name, engine in engines.items()})
    app = create_app(settings, registry)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = server_config(app, settings)
        config.timeout_graceful_shutdown = 1
        server = ListeningServer(config)
        running = asyncio.create_task(server.serve([listener]))
        await server.listening.wait()
        try:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            (page,) = (route.app for route in app.routes if isinstance(getattr(route, "app", None), App))
            yield Place(address, [*routes_of(app.routes)], page)
        finally:
            server.should_exit = True
            await running


def routes_of(routes: Sequence[Any], before: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        path = before + getattr(route, "path", "")
        if getattr(route, "routes", None):
            yield from routes_of(route.routes, path)
        else:
            yield from ((method, path) for method in getattr(route, "methods", None) or ())
