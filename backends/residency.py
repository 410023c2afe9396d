"""Which engines hold memory, where there is not enough for all of them at once.

An engine that comes up says how much it will hold. Where that does not fit beside the others, those
that nobody uses are stopped, the least recently used first; they come up again when they are asked.
An engine alone is never held back: whether it fits at all is its own to say.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from backends.base import Backend, BackendInfo

SHARE = 0.9
"""Of the device's memory, for all engines together."""
LOOK_INTERVAL = 0.2
"""Seconds between two looks for an engine that has become idle."""
MIB = 2**20


@runtime_checkable
class Resident(Protocol):
    """An engine that holds memory while it is up."""

    info: BackendInfo
    residency: Residency

    def has_work(self) -> bool: ...

    async def make_way(self, reason: str) -> None:
        """Stop, and give all memory back. ``reason`` is shown."""


class Residency:
    """Lives on the event loop.

    ``total``: bytes of the device, where they are known; ``limit``: for all engines together, else a
    share of the device.
    """

    def __init__(self, total: int | None = None, limit: int | None = None) -> None:
        self.total = total
        self._limit = limit if limit is not None or total is None else int(SHARE * total)
        self._sizes: dict[Resident, int] = {}
        """Of those that are up or coming up, the least recently used first."""
        self._taking = asyncio.Lock()

    @property
    def residents(self) -> tuple[Resident, ...]:
        return tuple(self._sizes)

    async def take(self, engine: Resident, size: int, say: Callable[[str], None]) -> None:
        """Return when there is room for ``size`` bytes more, which are ``engine``'s from then on.

        ``say`` hears whom it waits for, where all others are busy.
        """
        async with self._taking:
            self._sizes.pop(engine, None)
            while not self._fits(size):
                idle = next((other for other in self._sizes if not other.has_work()), None)
                if idle is not None:
                    await idle.make_way(f"Stopped to make room for {engine.info.title}.")
                    self.leave(idle)
                    continue
                say(f"Waiting for memory that {', '.join(o.info.title for o in self._sizes)} will give back")
                await asyncio.sleep(LOOK_INTERVAL)
            self._sizes[engine] = size

    def touch(self, engine: Resident) -> None:
        """It is used now."""
        if engine in self._sizes:
            self._sizes[engine] = self._sizes.pop(engine)

    def leave(self, engine: Resident) -> None:
        """It holds nothing any more. Idempotent."""
        self._sizes.pop(engine, None)

    def _fits(self, size: int) -> bool:
        return self._limit is None or not self._sizes or sum(self._sizes.values()) + size <= self._limit


def house(engine: Backend, residency: Residency) -> Backend:
    """Let an engine share the memory. One that runs elsewhere holds none here."""
    if isinstance(engine, Resident):
        engine.residency = residency
    return engine


def device_memory(device: str) -> int | None:
    """Bytes of the device that engines run on: the first GPU where there is one that may be used, else
    this machine's. ``None`` where nobody tells."""
    if device != "cpu" and (tool := shutil.which("nvidia-smi")) is not None:
        query = subprocess.run(
            [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=False,
        )
        first = query.stdout.partition("\n")[0].strip()
        if query.returncode == 0 and first.isdigit():
            return int(first) * MIB
    return machine_memory()["total_memory"]


def machine_memory() -> dict[str, int | None]:
    """Bytes in this machine, and those that are free now; ``None`` where the system does not tell."""
    pages = {"total_memory": "SC_PHYS_PAGES", "free_memory": "SC_AVPHYS_PAGES"}
    return {
        name: os.sysconf(key) * os.sysconf("SC_PAGE_SIZE") if key in os.sysconf_names else None
        for name, key in pages.items()
    }
