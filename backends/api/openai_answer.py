"""One or more requests to an engine as one stream of chunks, aborted together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from backends.api.disconnect import cancel
from backends.api.openai_errors import Aborted
from backends.api.teaching import PATIENCE
from backends.base import Backend, GenerationRequest, TokenChunk
from backends.records import FinishReason

ENDS = {FinishReason.STOP, FinishReason.LENGTH}
"""How an answer ends by itself."""


class Answer:
    """The requests of one HTTP request, each asked for its first chunk at once."""

    def __init__(self, engine: Backend, requests: Sequence[GenerationRequest]) -> None:
        self._streams = [engine.generate(request) for request in requests]
        self._next = {
            asyncio.ensure_future(anext(stream)): index for index, stream in enumerate(self._streams)
        }

    async def settle(self) -> None:
        """Wait for the first chunk or a refusal, as long as headers can wait."""
        await asyncio.wait(self._next, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)

    def raise_refusal(self) -> None:
        """Raise what refused a request, as long as a status can say so."""
        for first in self._next:
            if first.done():
                first.result()

    async def chunks(self) -> AsyncIterator[tuple[int, TokenChunk]]:
        """Each chunk as it comes, with the index of its request. Raises what ended a request."""
        while self._next:
            done, _ = await asyncio.wait(self._next, return_when=asyncio.FIRST_COMPLETED)
            for waited in done:
                index = self._next.pop(waited)
                try:
                    chunk = waited.result()
                except StopAsyncIteration:
                    continue
                if chunk.finish_reason is not None and chunk.finish_reason not in ENDS:
                    raise Aborted("The request was aborted before its answer was complete.")
                yield index, chunk
                self._next[asyncio.ensure_future(anext(self._streams[index]))] = index

    async def close(self) -> None:
        """Abort the requests that have not ended."""
        await cancel(*self._next)
        for stream in self._streams:
            await stream.aclose()
