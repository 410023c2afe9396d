"""The servers: who is up, what each says of itself, and which of them gets the next request.

Every server has a watcher. It asks what the server is until it answers, with back-off, and then looks
at it every second while it works for us, every five when not. ::

    asked ──answers──► up ──looked at──► up
      ▲                 │ refuses connections, or is silent twice
      └────back-off─────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from backends.errors import EngineUnavailable
from backends.lifecycle import FIRST_BACK_OFF, LONGEST_BACK_OFF
from backends.records import EngineGauges
from backends.remote.client import NotUp, ServerClient
from backends.remote.facts import ServerFacts, ask_what_it_is
from backends.remote.prometheus import read_gauges

LOOK_INTERVAL = 1.0
"""Seconds between two looks at a server that works for us."""
IDLE_LOOKS = 5
"""An idle one is looked at once in so many of them."""
MOST_MISSES = 2
"""Looks in a row that may fail before a server counts as down: a busy one may be late once."""


class Server:
    """One of them, as far as it is known now."""

    def __init__(self, client: ServerClient, number: int | None) -> None:
        """``number`` from 0, where there are several."""
        self.client = client
        self.number = number
        self.facts: ServerFacts | None = None
        """``None`` while it is down."""
        self.problem: str | None = None
        self.gauges: EngineGauges | None = None
        self.has_figures = True
        """Its ``/metrics`` can be read, as far as is known."""
        self.num_in_flight = 0
        """Requests of ours."""
        self.turn = 0
        """When it was last picked: for those that are equal in all else."""
        self.was_asked = asyncio.Event()
        """What it is has been asked once, whatever the answer."""
        self.doubted = asyncio.Event()
        """Something went wrong with it: ask it at once what it is."""

    @property
    def load(self) -> tuple[int, int, int]:
        """Requests of ours, then those of everybody by its own word, then whose turn it is."""
        told = self.gauges
        of_all = 0 if told is None else (told.num_running or 0) + (told.num_waiting or 0)
        return self.num_in_flight, of_all, self.turn

    @contextmanager
    def working(self) -> Iterator[None]:
        self.num_in_flight += 1
        try:
            yield
        finally:
            self.num_in_flight -= 1


class Fleet:
    """Lives on the event loop, from ``open`` to ``close``."""

    def __init__(
        self,
        clients: Sequence[ServerClient],
        *,
        on_change: Callable[[], None],
        on_gauges: Callable[[EngineGauges], None],
    ) -> None:
        is_one = len(clients) == 1
        self.servers = [Server(client, None if is_one else number) for number, client in enumerate(clients)]
        self._on_change = on_change
        self._on_gauges = on_gauges
        self._turns = 0
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def up(self) -> list[Server]:
        return [server for server in self.servers if server.facts is not None]

    @property
    def was_asked(self) -> bool:
        return all(server.was_asked.is_set() for server in self.servers)

    @property
    def problem(self) -> str:
        """What is wrong with those that are down; empty where none is."""
        return " ".join(server.problem for server in self.servers if server.problem)

    def open(self) -> None:
        self._watchers = [asyncio.create_task(self._watch(server)) for server in self.servers]

    async def close(self) -> None:
        """Who waits in ``settle`` waits no longer."""
        for server in self.servers:
            server.was_asked.set()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for server in self.servers:
            await server.client.close()

    async def settle(self) -> None:
        """Return as soon as one is up, or all have been asked in vain."""
        waiting = {asyncio.ensure_future(server.was_asked.wait()) for server in self.servers}
        try:
            while waiting and not self.up:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def pick(self, avoid: Collection[Server] = ()) -> Server:
        """The least loaded that is up, one that was not tried yet if there is one.

        Raises ``EngineUnavailable``.
        """
        if not self.up:
            raise EngineUnavailable(self.problem or "No server is up.")
        fresh = [server for server in self.up if server not in avoid]
        server = min(fresh or self.up, key=lambda server: server.load)
        self._turns += 1
        server.turn = self._turns
        return server

    def lost(self, server: Server, problem: str) -> None:
        """It cannot be reached: leave it out until it answers again."""
        self._set(server, None, problem)
        server.doubted.set()

    async def _watch(self, server: Server) -> None:
        back_off = FIRST_BACK_OFF
        while True:
            server.doubted.clear()
            try:
                facts = await ask_what_it_is(server.client)
            except NotUp as error:
                server.was_asked.set()
                self._set(server, None, f"{error} Asked again in {back_off:g} s.")
                await asyncio.sleep(back_off)
                back_off = min(LONGEST_BACK_OFF, back_off * 2)
                continue
            back_off = FIRST_BACK_OFF
            server.was_asked.set()
            self._set(server, facts, None)
            await self._attend(server, facts)

    async def _attend(self, server: Server, facts: ServerFacts) -> None:
        """Look at a server that is up, and return when it has to be asked anew."""
        server.has_figures = True
        misses, num_looks, was_busy = 0, 0, False
        while server.facts is facts:
            is_busy = server.num_in_flight > 0
            if is_busy or was_busy or misses or num_looks % IDLE_LOOKS == 0:
                try:
                    await self._look(server, facts, in_doubt=misses > 0)
                    misses = 0
                except NotUp as error:
                    misses += 1
                    if misses >= MOST_MISSES:
                        self._set(server, None, str(error))
            was_busy, num_looks = is_busy, num_looks + 1
            if await _woken(server.doubted, LOOK_INTERVAL):
                server.doubted.clear()
                misses = max(1, misses)

    async def _look(self, server: Server, facts: ServerFacts, *, in_doubt: bool) -> None:
        """Read its figures; where there are none, or in doubt, ask what it is. Raises ``NotUp``.

        Not while it works: llama-cpp-python drops an answer for any other question, and whether
        answers come shows how a server is.
        """
        had_figures = server.has_figures
        if had_figures:
            gauges = await self._figures(server, facts)
            server.has_figures = gauges is not None
            if gauges is not None:
                server.gauges = gauges
                self._on_gauges(gauges)
        if (in_doubt or not had_figures) and not server.num_in_flight:
            self._set(server, await ask_what_it_is(server.client), None)

    async def _figures(self, server: Server, facts: ServerFacts) -> EngineGauges | None:
        """``None`` where there are none, or only some that are not known here. Raises ``NotUp``."""
        text = await server.client.metrics()
        if text is None:
            return None
        with contextlib.suppress(ValueError):  # no Prometheus text, or not all of it
            return read_gauges(text, facts.model, time=time.monotonic(), server=server.number)
        return None

    def _set(self, server: Server, facts: ServerFacts | None, problem: str | None) -> None:
        if facts is None:
            server.gauges = None
        if (facts, problem) != (server.facts, server.problem):
            server.facts, server.problem = facts, problem
            self._on_change()


async def _woken(event: asyncio.Event, seconds: float) -> bool:
    """Did it happen within that time?"""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
