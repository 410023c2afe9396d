"""The server under load, ``python app.py`` in processes of its own, and what they cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil

from tests.app_server import app_process

PATIENCE = 180.0
"""Seconds for an engine to come up."""
MIB = 1024 * 1024


class Cost(msgspec.Struct, frozen=True):
    """Of the server's processes: the one that serves the web, and all that belong to its engines."""

    web_cpu: float
    """Seconds of a core, since it began."""
    engine_cpu: float
    web_memory: float
    """MiB: resident pages, those that it shares with others counted in part (PSS)."""
    engine_memory: float

    def since(self, before: Cost) -> tuple[float, float]:
        """Seconds of a core that the web process and the engines took between two moments."""
        return self.web_cpu - before.web_cpu, self.engine_cpu - before.engine_cpu


class Server:
    def __init__(self, address: str, pid: int, backend: str, folder: Path) -> None:
        self.address = address
        self.backend = backend
        self.folder = folder
        """Where its engine's records are written."""
        self._web = psutil.Process(pid)

    def cost(self) -> Cost:
        engines = [times for child in self._web.children(recursive=True) if (times := _look(child))]
        web = _look(self._web)
        assert web is not None, "the server has gone"
        return Cost(web[0], sum(cpu for cpu, _ in engines), web[1], sum(memory for _, memory in engines))

    def version(self) -> int:
        """Records until now, of an engine that is idle."""
        lines = httpx.get(f"{self.address}/telemetry/{self.backend}/trace", trust_env=False, timeout=60)
        lines.raise_for_status()
        _, first, *others = lines.content.splitlines()
        if not first.startswith(b'{"type":"snapshot"'):
            return 1 + len(others)
        return int(msgspec.json.decode(first)["version"]) + len(others) - 1  # the state of that moment


def _look(process: psutil.Process) -> tuple[float, float] | None:
    """CPU seconds and MiB; ``None`` for one that ended meanwhile."""
    try:
        times = process.cpu_times()
        return times.user + times.system, process.memory_full_info().pss / MIB
    except psutil.NoSuchProcess:
        return None


def cpu_seconds(pid: int) -> float:
    """That a process has taken."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@contextmanager
def running_server(backend: str, folder: Path, *options: str) -> Iterator[Server]:
    """A server with one engine, ready, that writes every record into ``folder``."""
    command = ("--backends", backend, "--record", str(folder), *options)
    with app_process(*command) as (process, address):
        with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE) as client:
            body = {"prompt": "Hello", "max_tokens": 1, "temperature": 0}
            client.post(f"/generate?backend={backend}", json=body).raise_for_status()
        yield Server(address, process.pid, backend, folder)


def machine() -> dict[str, object]:
    """Where it ran."""
    return {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
