"""Servescope: parse settings → build engines → HTTP routes → mount the page → serve.

``python app.py --help`` lists the options. Composition only; nothing happens at import, so that
engine processes, which import this module when they are spawned, stay light.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from backends.archive import Archive
    from backends.base import Backend
    from backends.registry import Registry
    from backends.settings import Settings
    from backends.shelf import Shelf

SHUTDOWN_PATIENCE = 2
"""Seconds that open connections get to end on Ctrl-C."""
LARGEST_HEAD = 65_536
"""Bytes of a request line and its headers."""


def build_registry(settings: Settings) -> Registry:
    """The operator's engines, each built when it is first looked up, and the memory they share."""
    from backends.registry import Registry
    from backends.residency import Residency, device_memory
    from backends.sizing import GIB

    limit = None if settings.engine_memory is None else int(settings.engine_memory * GIB)
    residency = Residency(device_memory(settings.device), limit)
    return Registry({name: partial(ENGINES[name], settings) for name in settings.backends}, residency)


def make_engine(settings: Settings, registry: Registry, name: str, /, **changes: Any) -> Backend:
    """An engine as the operator has it, but for some settings: what an experiment runs on, in the memory
    that all engines share."""
    from backends.residency import house

    return house(ENGINES[name](settings.model_copy(update=changes)), registry.residency)


def _naive(settings: Settings) -> Backend:
    from backends.naive.engine import NaiveEngine

    return NaiveEngine(settings)


def _generate(settings: Settings) -> Backend:
    from backends.generate.engine import GenerateEngine

    return GenerateEngine(settings)


def _paged(settings: Settings) -> Backend:
    from backends.paged.engine import PagedEngine

    return PagedEngine(settings)


def _vllm(settings: Settings) -> Backend:
    from backends.vllm_async.engine import VllmEngine

    return VllmEngine(settings)


def _remote(settings: Settings) -> Backend:
    from backends.remote.engine import RemoteBackend

    return RemoteBackend(settings)


ENGINES: dict[str, Callable[[Settings], Backend]] = {
    "naive": _naive,
    "generate": _generate,
    "paged": _paged,
    "remote": _remote,
    "vllm": _vllm,
}


def open_shelf(settings: Settings) -> Shelf:
    """The recordings to offer. A bad file of ``--replay`` is one line and exit code 2."""
    from backends.shelf import Shelf, read_recordings

    try:
        return Shelf(read_recordings(settings.replay))
    except ValueError as error:
        print(f"app.py: --replay: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def open_archive(settings: Settings, registry: Registry) -> Archive | None:
    """Where ``--record`` writes. A folder that cannot be had is one line and exit code 2."""
    if settings.record is None:
        return None
    from backends.archive import Archive

    try:
        settings.record.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"app.py: --record: {settings.record}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    return Archive(settings.record, [backend.recorder for backend in registry])


def create_app(
    settings: Settings, registry: Registry, shelf: Shelf | None = None, archive: Archive | None = None
) -> FastAPI:
    """The whole server: routes first, then the page at ``/``. ``shelf``: else the shipped recordings."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
    from fastapi import FastAPI

    from backends.api import include_routes
    from backends.visitors import Visitors
    from components.layout import mount_page

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        preloading = [asyncio.create_task(_preload(registry, name)) for name in settings.engines_to_preload]
        if archive is not None:
            archive.start()
        yield
        for task in preloading:
            task.cancel()
        await registry.stop()
        observation.count_the_rest()
        if archive is not None:
            await archive.close()

    visitors = Visitors(settings)
    app = FastAPI(title="Servescope", lifespan=lifespan, docs_url=None, redoc_url=None)
    observation = include_routes(
        app,
        registry,
        settings,
        make_engine=partial(make_engine, settings, registry),
        shelf=shelf,
        archive=archive,
        visitors=visitors,
    )
    return mount_page(app, registry, settings, visitors, observation.chat_failed)


async def _preload(registry: Registry, name: str) -> None:
    """Start an engine behind the page; its state tells whoever looks if it cannot run."""
    from backends.errors import EngineUnavailable

    with suppress(EngineUnavailable):
        await registry.get(name).start()


def with_instructor_key(settings: Settings) -> Settings:
    """Whoever can reach the server from elsewhere must not control it: make a key if there is none."""
    if settings.instructor_key or (settings.is_loopback and not settings.public):
        return settings
    key = secrets.token_urlsafe(12)
    print(f"Instructor key (pause, step, speed, restart, kill need it): {key}", flush=True)
    return settings.model_copy(update={"instructor_key": key})


def listen(settings: Settings) -> socket.socket:
    """The listening socket, before anything heavy is loaded: a port in use is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a small frame waits for an ACK
    try:
        listener.bind((settings.host, settings.port))
        listener.listen()  # who comes before the page is ready waits, instead of being refused
    except OSError as error:
        print(f"app.py: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    return listener


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How the app is served."""
    import uvicorn

    return uvicorn.Config(
        app,
        log_config=None,  # its lines are the log's; what was asked for has a line of ours
        log_level="warning",
        root_path=settings.root_path,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=SHUTDOWN_PATIENCE,
        http="h11",  # bounds what stands before a body, which httptools does not
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ws="websockets-sansio",
        ws_max_size=65_536,  # viewers have nothing to say
        ws_per_message_deflate=False,  # it would compress each frame once for every viewer
    )


def main() -> None:
    """Serve until Ctrl-C."""
    from backends import logs
    from backends.settings import parse_settings

    settings = parse_settings()
    logs.configure(settings.log_level, settings.log_format)
    shelf = open_shelf(settings)
    registry = build_registry(settings)
    archive = open_archive(settings, registry)
    settings = with_instructor_key(settings)
    listener = listen(settings)
    import uvicorn

    server = uvicorn.Server(server_config(create_app(settings, registry, shelf, archive), settings))
    print(f"Servescope: http://{settings.host}:{listener.getsockname()[1]}{settings.root_path}/", flush=True)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
