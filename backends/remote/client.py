"""One server over HTTP: its pages and its answers, with bounds on time and size.

Where it is and the key to it are known here and nowhere else: errors speak of ``server 1``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NamedTuple

import httpx

from backends.errors import UpstreamError
from backends.remote.dialect import UsageDetail
from backends.remote.refusals import Page, Refused, TryAgain
from backends.remote.sse import Event, EventParser, TooLong

CONNECT_TIMEOUT = 5.0
"""A machine that is there accepts a connection at once; busy ones let requests wait later."""
PROBE_TIMEOUT = 5.0
"""Lists and figures are read from memory; a server that needs longer for them is not well."""
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept: many servers close theirs after 5."""
LARGEST_ERROR = 64 * 1024
LARGEST_PAGE = 4 * 1024 * 1024
"""Bytes of a list of models or of ``/metrics``; vLLM tells some 100,000."""


class NotUp(Exception):
    """The server cannot be used; the message says why, and is shown."""


class Arrival(NamedTuple):
    """An event, and when its bytes were read from the socket."""

    time: float
    event: Event


class ServerClient:
    """``title`` is how visitors know it: ``Server 2``, or ``The server`` where there is one."""

    def __init__(self, address: str, title: str, *, key: str | None = None, model: str | None = None) -> None:
        self.title = title
        url = httpx.URL(address)
        self._root = str(url.copy_with(userinfo=b"")).rstrip("/").removesuffix("/v1")
        self.wanted_model = model
        """As the operator named it."""
        self._hidden = [text for text in (key, url.password, url.netloc.decode(), url.host) if text]
        headers = {"Accept-Encoding": "identity", "User-Agent": "servescope"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.AsyncClient(
            auth=httpx.BasicAuth(url.username, url.password) if url.userinfo and key is None else None,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),  # all else is bounded by its caller
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE),
            verify=_certificates(),
            trust_env=False,  # neither a proxy nor a password that the operator did not name
        )
        self.usage_detail = UsageDetail.WITH_EVERY_CHUNK
        """The most that it has not refused to tell."""

    async def close(self) -> None:
        await self._http.aclose()

    async def metrics(self) -> str | None:
        """The text of ``/metrics``; ``None`` where there is none. Raises ``NotUp``."""
        page = await self.get("/metrics")
        kind = page.content_type.partition(";")[0].strip()
        is_prometheus = page.status == 200 and kind in ("text/plain", "application/openmetrics-text")
        return page.body.decode(errors="replace") if is_prometheus else None

    @asynccontextmanager
    async def stream(
        self, path: str, body: dict[str, Any], largest: int
    ) -> AsyncIterator[AsyncGenerator[Arrival, None]]:
        """The events of an answer; leaving the block closes the connection, and the server aborts.

        Raises ``TryAgain`` for what may pass, ``Refused`` for an answer that is none, ``UpstreamError``
        for one that is not a stream or longer than ``largest`` bytes. Without a limit of time.
        """
        try:
            async with self._http.stream(
                "POST", self._root + path, json=body, headers={"Accept": "text/event-stream"}
            ) as response:
                if response.status_code != 200:
                    refusal = await self._page(response, LARGEST_ERROR)
                    raise Refused(refusal._replace(body=self.hide(refusal.body)))
                self._check_kind(response)
                yield self._events(response, largest)
        except httpx.HTTPError as error:
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise TryAgain(UpstreamError(self._why(error)), is_unreachable=unreachable) from None

    def _check_kind(self, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise UpstreamError(f"{self.title} answered with no stream of events.")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise UpstreamError(f"{self.title} compresses its answer, although it was asked not to.")

    async def _events(self, response: httpx.Response, largest: int) -> AsyncGenerator[Arrival, None]:
        parser, size = EventParser(), 0
        async for data in response.aiter_raw():
            now = time.monotonic()
            size += len(data)
            try:
                for event in parser.feed(data):
                    yield Arrival(now, event)
            except TooLong:
                raise UpstreamError(f"{self.title} sent an event without end.") from None
            if size > largest:
                raise UpstreamError(f"{self.title} sent more than {largest:,} bytes: no answer is that long.")

    async def get(self, path: str) -> Page:
        """A page in full. Raises ``NotUp``."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                try:
                    return await self._get_once(path)
                except (
                    httpx.RemoteProtocolError,
                    httpx.ReadError,
                ):  # a kept connection that the server had closed
                    return await self._get_once(path)
        except TimeoutError:
            raise NotUp(f"{self.title} does not answer within {PROBE_TIMEOUT:g} s.") from None
        except httpx.HTTPError as error:
            raise NotUp(self._why(error)) from None

    async def _get_once(self, path: str) -> Page:
        async with self._http.stream("GET", self._root + path) as response:
            return await self._page(response, LARGEST_PAGE)

    async def _page(self, response: httpx.Response, largest: int) -> Page:
        body = b""
        async for data in response.aiter_raw():
            body += data
            if len(body) > largest:
                body = b""  # nothing that long is worth reading
                break
        headers = response.headers
        return Page(
            response.status_code,
            headers.get("content-type", ""),
            body,
            _seconds(headers.get("retry-after")),
        )

    def hide(self, body: bytes) -> bytes:
        """An error without the address and the key, should the server repeat them."""
        for secret in self._hidden:
            pattern = rb"(?i)(?<![\w.-])" + re.escape(secret.encode()) + rb"(?![\w-])"
            body = re.sub(pattern, b"...", body)
        return body

    def _why(self, error: httpx.HTTPError) -> str:
        """In words, and without the address that the error itself may name."""
        causes = list(_causes(error))
        for kind, words in _REASONS:
            if any(isinstance(cause, kind) for cause in causes):
                return f"{self.title} cannot be reached: {words}."
        if isinstance(error, httpx.ConnectError):
            return f"{self.title} cannot be reached."
        return f"{self.title} closed the connection."


@cache
def _certificates() -> ssl.SSLContext:
    """Those that this machine trusts; reading them takes a tenth of a second."""
    return ssl.create_default_context()


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (ssl.SSLError, "it does not speak TLS"),
    (socket.gaierror, "its name is not known"),
    (ConnectionRefusedError, "the connection is refused"),
    (httpx.ConnectTimeout, f"no connection within {CONNECT_TIMEOUT:g} s"),
)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner)
        error = error.__cause__ or error.__context__


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` is a number of seconds or a date."""
    if retry_after is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", retry_after.strip()):
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
