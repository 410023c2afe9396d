"""Every bad input gets a 4xx in plain words, with the value and the limit, and nothing is queued."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from backends.api.body import DEFAULT_LIMIT
from backends.records import RequestArrived
from backends.settings import Settings
from tests.api.serving import Served, serving
from tests.fakes import FakeBackend

JSON = {"Content-Type": "application/json"}
PATHS = ["/generate", "/generate_stream"]


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    backend = FakeBackend(modes=("sequential", "static"))
    async with serving(backend, settings=Settings(max_model_len=64, max_tokens=512)) as served:
        yield served


async def refused(server: Served, path: str, status: int, **request: Any) -> str:
    """The message of the error; no request may have reached the engine."""
    async with server.client() as client:
        response = await client.post(path, **request)
    assert response.status_code == status, response.text
    arrived = [e for e in server.naive.recorder.since(0) if isinstance(e.record, RequestArrived)]
    assert arrived == []
    message = response.json()["error"]["message"]
    assert isinstance(message, str)
    assert message
    return message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": ""}, ["prompt is empty"]),
        ({"prompt": " \n\t"}, ["prompt is empty"]),
        ({"max_tokens": 0}, ["max_tokens is 0", "from 1 to 512"]),
        ({"max_tokens": -5}, ["max_tokens is -5", "from 1 to 512"]),
        ({"max_tokens": 513}, ["max_tokens is 513", "from 1 to 512"]),
        ({"max_tokens": 10**30}, [f"max_tokens is {10**30}", "from 1 to 512"]),
        ({"temperature": -0.1}, ["temperature is -0.1", "from 0 to 2"]),
        ({"temperature": 1e300}, ["temperature is 1e+300", "from 0 to 2"]),
    ],
)
async def test_a_value_out_of_range_is_a_400(
    server: Served, path: str, change: dict[str, Any], words: list[str]
) -> None:
    body = {"prompt": "hello"} | change
    message = await refused(server, path, 400, json=body)

    assert all(word in message for word in words)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "loc", "word"),
    [
        ("{}", ["body", "prompt"], "Field required"),
        ('{"prompt": 5}', ["body", "prompt"], "got 5"),
        ('{"prompt": null}', ["body", "prompt"], "got None"),
        ('{"prompt": ["a"]}', ["body", "prompt"], "got ['a']"),
        ('{"prompt": "a", "max_tokens": "20"}', ["body", "max_tokens"], "got '20'"),
        ('{"prompt": "a", "max_tokens": true}', ["body", "max_tokens"], "got True"),
        ('{"prompt": "a", "max_tokens": 2.5}', ["body", "max_tokens"], "got 2.5"),
        ('{"prompt": "a", "max_tokens": null}', ["body", "max_tokens"], "got None"),
        ('{"prompt": "a", "temperature": "0.7"}', ["body", "temperature"], "got '0.7'"),
        ('{"prompt": "a", "temperature": false}', ["body", "temperature"], "got False"),
        ('{"prompt": "a", "temperature": NaN}', ["body", "temperature"], "got nan"),
        ('{"prompt": "a", "temperature": Infinity}', ["body", "temperature"], "got inf"),
        ('{"prompt": "a", "top_p": 0.9}', ["body", "top_p"], "not permitted"),
        ('{"prompts": ["a"]}', ["body", "prompt"], "Field required"),
        ('{"prompt": "\\ud800"}', ["body", "prompt"], r"got '\ud800'"),
        ("[]", ["body"], "valid dictionary"),
        ("null", ["body"], "required"),
        ("", ["body"], "Field required"),
        ('{"prompt": "a"', ["body", 14], "not valid JSON"),
        ("prompt=a", ["body", 0], "not valid JSON"),
    ],
)
async def test_a_wrong_type_is_a_422_that_names_the_place(
    server: Served, path: str, body: str, loc: list[str | int], word: str
) -> None:
    async with server.client() as client:
        response = await client.post(path, content=body.encode(), headers=JSON)

    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == loc
    assert word in response.json()["error"]["message"]
    assert server.naive.num_in_flight == 0


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_is_not_utf_8_is_a_400(server: Served, path: str) -> None:
    message = await refused(server, path, 400, content=b'{"prompt": "\xff"}', headers=JSON)

    assert message == "The body is not UTF-8: byte 12 is 0xff."


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}"])
async def test_json_made_to_hurt_a_parser_is_a_4xx(server: Served, body: bytes) -> None:
    async with server.client() as client:
        response = await client.post("/generate", content=body, headers=JSON)

    assert response.status_code in (400, 422)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_declared_as_json_is_a_415(server: Served, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    message = await refused(server, "/generate", 415, content=b'{"prompt": "a"}', headers=headers)

    assert "Content-Type: application/json" in message


async def test_a_charset_after_the_content_type_is_fine(server: Served) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    async with server.client() as client:
        response = await client.post(
            "/generate", content=b'{"prompt": "a", "max_tokens": 1}', headers=headers
        )

    assert response.status_code == 200


async def test_a_body_that_is_too_large_is_a_413(server: Served) -> None:
    body = json.dumps({"prompt": "a" * DEFAULT_LIMIT}).encode()
    message = await refused(server, "/generate", 413, content=body, headers=JSON)

    assert f"the limit is {DEFAULT_LIMIT:,}" in message


async def test_a_body_that_goes_on_and_on_is_cut_off(server: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"prompt": "'
        while True:
            yield b"a" * 65536

    async with server.client() as client:
        try:
            response = await client.post("/generate", content=endless(), headers=JSON)
        except (httpx.WriteError, httpx.ReadError):  # it closed the connection while we were sending
            return
    assert response.status_code == 413


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_backend_is_a_404_that_names_those_there_are(server: Served, path: str) -> None:
    message = await refused(server, f"{path}?backend=nope", 404, json={"prompt": "a"})

    assert "'nope'" in message
    assert "naive" in message


async def test_an_empty_backend_is_not_the_default(server: Served) -> None:
    await refused(server, "/generate?backend=", 404, json={"prompt": "a"})


async def test_an_unknown_mode_is_a_400_that_names_those_there_are(server: Served) -> None:
    message = await refused(server, "/generate?mode=turbo", 400, json={"prompt": "a"})

    assert "'turbo'" in message
    assert "sequential, static" in message


async def test_a_bad_value_is_refused_while_the_engine_is_not_even_started(server: Served) -> None:
    server.naive.may_start.clear()

    await refused(server, "/generate_stream", 400, json={"prompt": "a", "max_tokens": 0})


@pytest.mark.parametrize(("method", "path"), [("GET", "/generate"), ("DELETE", "/control/naive/pause")])
async def test_a_wrong_method_is_a_405(server: Served, method: str, path: str) -> None:
    async with server.client() as client:
        response = await client.request(method, path)

    assert response.status_code == 405
