"""One answer of an engine, read as it comes and shown at the pace of a screen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from backends.base import TokenChunk
from backends.errors import ServescopeError

SHOW_INTERVAL = 0.1
"""Least seconds between two updates of the screen: tokens that come faster share one."""
LOOK_INTERVAL = 0.5
"""Most seconds between two updates. A page that has gone is noticed at the next one only, and
what an engine says while it starts is looked up at each."""


class Answer:
    """An answer that grows: a task of its own reads the engine, ``updates`` paces whoever shows it."""

    def __init__(self, chunks: AsyncGenerator[TokenChunk, None]) -> None:
        self.text = ""
        self.error: ServescopeError | None = None
        self.discarded = False
        """Whoever asked does not want it any more."""
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read(chunks))

    @property
    def done(self) -> bool:
        """``text`` and ``error`` will not change any more."""
        return self._reader.done()

    @property
    def stopped(self) -> bool:
        """It was ended by ``stop``."""
        return self._reader.cancelled()

    def stop(self) -> None:
        """End the request in the engine; what came so far stays. Harmless once it has ended."""
        self._reader.cancel()

    def discard(self) -> None:
        self.discarded = True
        self.stop()

    async def updates(self) -> AsyncGenerator[None, None]:
        """A turn whenever there may be something new to show, and a last one for the end.

        Leaving early, or the task being cancelled, ends the request in the engine.
        """
        try:
            while not self.done:
                yield
                await asyncio.sleep(SHOW_INTERVAL)
                await self._wait_for_news()
            yield
        finally:
            self.stop()
            await asyncio.wait({self._reader})
        if not self.stopped:
            self._reader.result()  # an error that is no ServescopeError is a fault of ours

    async def _read(self, chunks: AsyncGenerator[TokenChunk, None]) -> None:
        try:
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    self.text += chunk.text
                    self._news.set()
        except ServescopeError as error:
            self.error = error
        finally:
            self._news.set()

    async def _wait_for_news(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_INTERVAL):
                await self._news.wait()
        self._news.clear()
