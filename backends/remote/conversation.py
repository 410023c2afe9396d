"""One try to get one answer from one server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from backends.base import GenerationRequest
from backends.errors import UpstreamError
from backends.remote.answer import Answer, Arrived
from backends.remote.chunks import BadChunk, read_chunk
from backends.remote.client import Arrival
from backends.remote.dialect import UsageDetail, body_of, path_of
from backends.remote.fleet import Server
from backends.remote.refusals import Page, Refused, TryAgain, error_of, is_about_stream_options, said_in

FIRST_TOKEN_TIMEOUT = 120.0
"""Seconds. A request may wait in the server's queue, and then a long prompt is computed."""
BETWEEN_TOKENS_TIMEOUT = 60.0
"""A request that is preempted waits for blocks in the middle of its answer."""
END_TIMEOUT = 5.0
"""For the usage, once every text has ended: it is known already and follows at once."""
CLOSE_TIMEOUT = 0.25
"""For the end of the response after ``[DONE]``: read to its end, a connection can be used again."""
BYTES_PER_TOKEN = 8 * 1024
"""More than a chunk of one token takes, with twenty log probabilities."""
LEAST_BYTES = 1024 * 1024
"""For what comes beside tokens, such as comments that keep the connection open."""

DONE = b"[DONE]"


async def converse(server: Server, request: GenerationRequest, take: Callable[[Arrived], None]) -> Answer:
    """The whole answer; ``take`` gets its parts as they come.

    Raises ``TryAgain`` for what may pass, only before the first token, and ``ServescopeError``.
    """
    detail = server.client.usage_detail
    with server.working():
        while True:
            try:
                return await _Conversation(server, request, detail, take).run()
            except Refused as refused:
                if detail is UsageDetail.NONE or not is_about_stream_options(refused.page):
                    raise error_of(refused.page, server.client.title) from None
            detail = UsageDetail(detail - 1)


class _Conversation:
    def __init__(
        self,
        server: Server,
        request: GenerationRequest,
        detail: UsageDetail,
        take: Callable[[Arrived], None],
    ) -> None:
        assert server.facts is not None, "only servers that are up are picked"
        self._server = server
        self._client = server.client
        self._detail = detail
        self._path = path_of(request)
        self._body = body_of(request, server.facts.model, detail)
        sampling = request.sampling
        self._largest = LEAST_BYTES + sampling.n * sampling.max_tokens * BYTES_PER_TOKEN
        self._answer = Answer(request, self._client.title)
        self._take = take
        self._is_done = False
        """The server has said that nothing follows."""

    async def run(self) -> Answer:
        try:
            async with asyncio.timeout(FIRST_TOKEN_TIMEOUT) as limit:
                await self._read(limit)
        except TimeoutError:
            if not self._answer.is_complete and not self._is_done:
                raise self._too_late() from None
        except TryAgain as problem:
            if not self._answer.is_complete:
                raise self._lost(problem) from None
        if not self._answer.is_complete:
            raise self._lost(TryAgain(self._answer.broken_off()))
        return self._answer

    async def _read(self, limit: asyncio.Timeout) -> None:
        """Up to the end of the stream, of the answer, or of patience."""
        now = asyncio.get_running_loop().time
        async with (
            self._client.stream(self._path, self._body, self._largest) as stream,
            aclosing(stream) as arrivals,
        ):
            self._client.usage_detail = self._detail  # it was taken, so it is what to ask for next time
            async for arrival in arrivals:
                if arrival.event.data.strip() == DONE:
                    self._is_done = True
                    limit.reschedule(now() + CLOSE_TIMEOUT)
                    continue
                if self._is_done:
                    continue
                arrived = self._understand(arrival)
                if arrived.tokens:
                    limit.reschedule(now() + BETWEEN_TOKENS_TIMEOUT)
                    self._take(arrived)
                if self._answer.is_complete:
                    limit.reschedule(now() + END_TIMEOUT)

    def _understand(self, arrival: Arrival) -> Arrived:
        """Raises ``TryAgain`` or ``ServescopeError`` for an error in the stream."""
        data = arrival.event.data
        try:
            chunk = read_chunk(data)
        except BadChunk as error:
            if arrival.event.name == "error":
                raise self._error_in_stream(data, None) from None
            raise UpstreamError(
                f"{self._client.title} sent what is no chunk of an answer: {error}."
            ) from None
        if chunk.is_error or arrival.event.name == "error":
            raise self._error_in_stream(data, chunk.status)
        try:
            return self._answer.take(chunk, arrival.time)
        except BadChunk as error:
            raise UpstreamError(
                f"{self._client.title} sent what is no chunk of an answer: {error}."
            ) from None

    def _error_in_stream(self, data: bytes, status: int | None) -> Exception:
        """Before the first token it is a refusal like one with a status of its own."""
        data = self._client.hide(data)
        if not self._answer.has_begun:
            return error_of(Page(status or 500, "application/json", data), self._client.title)
        words = said_in(data).words
        return UpstreamError(f"{self._answer.broken_off().message}{f' {words}' if words else ''}")

    def _lost(self, problem: TryAgain) -> Exception:
        """The connection could not be made, or ended too early."""
        self._server.doubted.set()
        return self._answer.broken_off() if self._answer.has_begun else problem

    def _too_late(self) -> UpstreamError:
        self._server.doubted.set()
        title = self._client.title
        if self._answer.has_begun:
            return UpstreamError(f"{title} sent no further token for {BETWEEN_TOKENS_TIMEOUT:g} s.")
        return UpstreamError(f"{title} sent no token within {FIRST_TOKEN_TIMEOUT:g} s.")
