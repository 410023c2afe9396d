"""Name → backend. A missing optional dependency makes a backend "unavailable: why"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from backends.base import Backend
from backends.errors import UnknownBackend
from backends.residency import Residency, house

Factory = Callable[[], Backend]


class Registry:
    """The engines this server offers, built when first looked up, in the operator's order."""

    def __init__(self, factories: Mapping[str, Factory], residency: Residency | None = None) -> None:
        self.residency = residency or Residency()
        """The memory that the engines share."""
        self._factories = dict(factories)
        self._built: dict[str, Backend] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    @property
    def default(self) -> str:
        """What the page opens with. Raises ``UnknownBackend`` where only recordings are shown."""
        if not self.names:
            raise UnknownBackend("This server has no engine: it shows recordings.", field="backend")
        return self.names[0]

    def get(self, name: str) -> Backend:
        """The backend of that name. Raises ``UnknownBackend`` naming those there are."""
        if name not in self._factories:
            raise UnknownBackend(
                f"No backend {name!r} here. There are: {', '.join(self.names) or 'none'}.", field="backend"
            )
        if name not in self._built:
            self._built[name] = house(self._factories[name](), self.residency)
        return self._built[name]

    def __iter__(self) -> Iterator[Backend]:
        return (self.get(name) for name in self.names)

    async def abort_visitor(self, visitor: str) -> None:
        """End everything a visitor who has left was waiting for."""
        await asyncio.gather(*(backend.abort_visitor(visitor) for backend in self._built.values()))

    async def stop(self) -> None:
        """End every engine that was started."""
        await asyncio.gather(*(backend.stop() for backend in self._built.values()))
