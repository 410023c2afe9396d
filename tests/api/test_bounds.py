"""What anybody can send is bounded on every route, Gradio's with them; a browser guesses at nothing.

Messages over the WebSocket: ``tests/api/test_telemetry.py``. Queues: ``tests/api/test_visitors.py``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from app import LARGEST_HEAD
from backends.api.body import CUT_OFF, DEFAULT_LIMIT
from backends.api.guard import HEADERS
from backends.settings import Settings
from tests.api.place import Place, place
from tests.fakes import FakeBackend

LARGEST_BODY = CUT_OFF * DEFAULT_LIMIT
CROWD = 200
"""Connections that never finish their request."""
PATIENCE = 20


@pytest.fixture
async def here() -> AsyncIterator[Place]:
    settings = Settings(max_model_len=64)
    async with place(settings, FakeBackend("naive", settings=settings)) as served:
        yield served


async def status_of(here: Place, *parts: bytes) -> int | None:
    """The status that comes back for raw bytes, whatever is left of them to send; ``None`` where the
    connection was closed on us."""
    reader, writer = await asyncio.open_connection(*here.address.split(":"))
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
    except ConnectionError:
        return None
    finally:
        writer.close()
    return int(line.split()[1]) if line else None


async def test_what_stands_before_a_body_is_bounded(here: Place) -> None:
    begin = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    long = b"a" * LARGEST_HEAD * 2
    many = b"X: " + b"a" * 1000 + b"\r\n"
    assert await status_of(here, begin, b"X: ", b"a" * (LARGEST_HEAD // 2), b"\r\n\r\n") == 200
    assert await status_of(here, begin, b"X: ", long, b"\r\n\r\n") in (400, None)
    assert await status_of(here, b"GET /health?", long, b" HTTP/1.1\r\nHost: x\r\n\r\n") in (400, None)
    assert await status_of(here, begin, *[many] * 1000, b"\r\n\r\n") in (400, None)
    for length in (b"-5", b"five", b"5, 6", b"\xff"):
        assert await status_of(here, begin, b"Content-Length: ", length, b"\r\n\r\n") == 400


async def test_no_route_reads_a_body_beyond_the_limit(here: Place) -> None:
    """Told at once where the length is declared, and where it is not, once it was too much."""
    posts = [path for method, path in here.routes if method == "POST"]
    assert len(posts) > 20
    assert "/gradio_api/queue/join" in posts
    for path in posts:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n"
        assert (path, await status_of(here, head.encode())) == (path, 413)
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    head = b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    enough = [chunk] * (LARGEST_BODY // 0x10000 + 1)
    assert await status_of(here, head, *enough) == 413


async def test_who_never_finishes_a_request_keeps_nobody_else_waiting(here: Place) -> None:
    halves = [await asyncio.open_connection(*here.address.split(":")) for _ in range(CROWD)]
    for _, writer in halves:
        writer.write(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n")
    async with here.client() as client:
        assert (await client.post("/generate", json={"prompt": "a", "max_tokens": 1})).status_code == 200
    for _, writer in halves:
        writer.close()


async def test_gradio_takes_no_files_gives_none_and_asks_no_other_host(here: Place) -> None:
    async with here.client() as client:
        upload = await client.post("/gradio_api/upload", files={"files": ("trace.jsonl", b"{}" * 100)})
        assert upload.status_code == 413
        for name in ("app.py", "/etc/passwd", "../app.py", "%2e%2e/app.py", "..%2fapp.py", "//etc/passwd"):
            for path in ("/gradio_api/file=", "/static/", "/assets/", "/assets/js/", "/svelte/"):
                refused = await client.get(httpx.URL(f"http://{here.address}{path}{name}"))
                assert refused.status_code in (400, 403, 404), refused.url
        other = await client.get(f"/gradio_api/proxy=http://{here.address}/health")
        assert other.status_code == 400


async def test_every_answer_tells_a_browser_not_to_guess(here: Place) -> None:
    async with here.client() as client:
        for path in ("/", "/health", "/nothing", "/traces", "/assets/js/main.js", "/config"):
            headers = (await client.get(path)).headers
            assert {name: headers[name] for name in HEADERS} == HEADERS, path


async def test_no_request_can_name_a_server_to_ask(here: Place) -> None:
    async with here.client() as client:
        described = json.dumps((await client.get("/openapi.json")).json())
        refused = await client.post("/generate", json={"prompt": "a", "remote_url": "http://other"})
    assert not re.search(r'"(name|title)": "[^"]*(remote|url|host|endpoint)', described, re.IGNORECASE)
    assert refused.status_code == 422
