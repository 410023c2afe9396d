"""The server of a mix: every engine, on one tiny model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import connect

from backends.api import include_routes
from backends.base import Backend, ControlAction
from backends.generate.engine import GenerateEngine
from backends.naive.engine import NaiveEngine
from backends.paged.engine import PagedEngine
from backends.registry import Registry
from backends.remote.engine import RemoteBackend
from backends.settings import Settings
from backends.visitors import Visitors
from backends.vllm_async.engine import VllmEngine
from tests.fakes import make_fake
from tests.listening import ListeningServer
from tests.remote_servers.base import RemoteServer, running
from tests.remote_servers.dialects import Vllm
from tests.tiny_models import make_tiny_model

KEY = "only for the teacher"
NUM_BLOCKS = 24
"""Of four slots: three of the longest requests fill them, so there are preemptions."""
VLLM_BLOCK_SIZE, VLLM_NUM_BLOCKS = 32, 8
"""What its attention for CPUs can do; one of them is its null block."""
VLLM_HEAD_DIM = 32
REMOTE_WORDS = (" once", " upon", " a", " time", " there", " was", " a", " batch", " of", " four")
REMOTE_INTERVAL = 0.005
"""Seconds that the remote server takes for a token, so that a client can leave midway."""


class PacedVllm(Vllm):
    """Takes a while for each token."""

    async def paced(self, body: dict[str, Any]) -> AsyncIterator[tuple[str, int, str | None]]:
        for part in self.parts(body):
            await asyncio.sleep(REMOTE_INTERVAL)
            yield part


@dataclass
class Site:
    """What the mix's clients ask, and what its audit looks into."""

    address: str
    engines: dict[str, Backend]
    visitors: Visitors
    remote_server: RemoteServer

    def client(self, visitor: str | None = None) -> httpx.AsyncClient:
        """One connection pool a client, as a browser has; a visitor names itself, as the page does."""
        headers = {} if visitor is None else {"Servescope-Visitor": visitor}
        return httpx.AsyncClient(
            base_url=f"http://{self.address}", headers=headers, timeout=None, trust_env=False
        )

    def feed(self, query: str) -> connect:
        return connect(f"ws://{self.address}/telemetry{query}", proxy=None, max_size=None)

    async def control(self, client: httpx.AsyncClient, backend: str, action: ControlAction) -> httpx.Response:
        """As the teacher, over HTTP."""
        headers = {"Authorization": f"Bearer {KEY}"}
        return await client.post(f"/control/{backend}/{action}", headers=headers)


@asynccontextmanager
async def mixed_site(folder: Path, *, with_vllm: bool) -> AsyncIterator[Site]:
    """Open to strangers, so that shares are counted too; limits are small, so that they are reached."""
    model = make_tiny_model(folder / "llama", tokenizer="words", head_dim=VLLM_HEAD_DIM)
    server = PacedVllm(words=REMOTE_WORDS)
    async with running(server) as remote_url:
        settings = Settings(
            model=str(model),
            cache_dir=folder / "cache",
            backends=("naive", "generate", "paged", "remote", *(("vllm",) if with_vllm else ())),
            remote_url=(remote_url,),
            max_model_len=64,
            max_tokens=48,
            max_waiting=24,
            block_size=4,
            num_blocks=NUM_BLOCKS,
            max_num_seqs=6,
            max_num_batched_tokens=24,
            public=True,
            instructor_key=KEY,
        )
        engines: dict[str, Backend] = {
            "naive": NaiveEngine(settings),
            "generate": GenerateEngine(settings),
            "paged": PagedEngine(settings),
            "remote": RemoteBackend(settings),
        }
        if with_vllm:
            pool = {"block_size": VLLM_BLOCK_SIZE, "num_blocks": VLLM_NUM_BLOCKS}
            engines["vllm"] = VllmEngine(settings.model_copy(update=pool))
        registry = Registry({name: lambda engine=engine: engine for name, engine in engines.items()})
        visitors = Visitors(settings)
        app = FastAPI()
        include_routes(app, registry, settings, make_engine=make_fake, visitor_grace=0.05, visitors=visitors)
        async with _served(app) as address:
            try:
                yield Site(address, engines, visitors, server)
            finally:
                await registry.stop()


@asynccontextmanager
async def _served(app: FastAPI) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web = ListeningServer(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(web.serve([listener]))
        await web.listening.wait()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            web.should_exit = True
            await serving
