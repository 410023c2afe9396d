"""When a server can be asked: one of this process, or one that is a process of its own."""

from __future__ import annotations

import asyncio
import socket
import subprocess

import httpx
import uvicorn
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

LOOK_INTERVAL = 0.2
"""Seconds: nothing tells from outside when a port begins to answer."""


class ListeningServer(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


def until_it_answers(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], url: str, patience: float
) -> None:
    """Return once ``url`` answers. Raises what went wrong after ``patience`` seconds, and at once when
    the process has ended."""
    for attempt in Retrying(
        retry=retry_if_exception_type(httpx.TransportError),
        wait=wait_fixed(LOOK_INTERVAL),
        stop=stop_after_delay(patience),
        reraise=True,
    ):
        with attempt:
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
            httpx.get(url, trust_env=False, timeout=patience).raise_for_status()
