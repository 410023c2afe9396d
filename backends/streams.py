"""The last part of a token's way: any thread → the event loop → one request's own queue."""

from __future__ import annotations

import asyncio

from backends.base import GenerationRequest, TokenChunk
from backends.errors import ServescopeError


class RequestStream:
    """A request in flight and the queue of what it still has to receive.

    The engine puts from its thread, whoever asked gets on the event loop. One queue a request:
    with a single shared one, tokens would reach whoever happens to ask first.
    """

    def __init__(self, request: GenerationRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self._loop = loop
        self._queue: asyncio.Queue[TokenChunk | ServescopeError] = asyncio.Queue()

    @property
    def depth(self) -> int:
        """Chunks that wait to be taken."""
        return self._queue.qsize()

    def put(self, item: TokenChunk | ServescopeError) -> None:
        """Thread-safe; never blocks. An error ends the stream for whoever reads it."""
        putting = self._queue.put(item)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop)
        except RuntimeError:  # the loop is closed: nobody is left to read
            putting.close()

    async def get(self) -> TokenChunk:
        """The next chunk, in order. Raises the error that ended the request."""
        item = await self._queue.get()
        if isinstance(item, ServescopeError):
            raise item
        return item
