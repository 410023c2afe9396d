"""The last part of a token's way: any thread → the event loop → one request's own queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from backends.base import GenerationRequest, TokenChunk, Way
from backends.errors import ServescopeError


class RequestStream:
    """A request in flight and the queue of what it still has to receive.

    The engine puts from its thread, whoever asked gets on the event loop. One queue a request:
    with a single shared one, tokens would reach whoever happens to ask first.
    """

    def __init__(
        self,
        request: GenerationRequest,
        loop: asyncio.AbstractEventLoop,
        prompt_ids: Sequence[list[int]] = (),
    ) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        """The prompt of each text, where it is tokenized here."""
        self._loop = loop
        self._queue: asyncio.Queue[TokenChunk | ServescopeError] = asyncio.Queue()

    @property
    def depth(self) -> int:
        """Chunks that wait to be taken."""
        return self._queue.qsize()

    def put(self, item: TokenChunk | ServescopeError) -> None:
        """Thread-safe; never blocks. An error ends the stream for whoever reads it."""
        if self.request.traced and isinstance(item, TokenChunk):
            item = replace(item, way=Way(handed=time.monotonic()))
        putting = self._put(item)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop)
        except RuntimeError:  # the loop is closed: nobody is left to read
            putting.close()

    async def _put(self, item: TokenChunk | ServescopeError) -> None:
        """On the event loop."""
        if isinstance(item, TokenChunk) and item.way is not None:
            item = replace(item, way=replace(item.way, queued=time.monotonic()))
        await self._queue.put(item)

    async def get(self) -> TokenChunk:
        """The next chunk, in order. Raises the error that ended the request."""
        item = await self._queue.get()
        if isinstance(item, ServescopeError):
            raise item
        if item.way is not None:
            item = replace(item, way=replace(item.way, taken=time.monotonic()))
        return item
