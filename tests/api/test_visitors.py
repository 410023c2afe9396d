"""``--public`` over every route that generates: a visitor's share, the address's, and who is not counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from backends.records import RequestArrived
from backends.settings import Settings
from tests.api.serving import Served, recorded, serving
from tests.fakes import FakeBackend

KEY = "correct horse battery"
ASKED: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "one"},
    "/generate_stream": {"prompt": "one"},
    "/generate_vllm": {"prompts": ["one"]},
    "/v1/completions": {"model": "naive", "prompt": "one"},
    "/v1/chat/completions": {"model": "naive", "messages": [{"role": "user", "content": "one"}]},
}
RUNS: dict[str, dict[str, Any]] = {
    "/workloads/races": {"workload": {"students": 1}, "entries": [{"backend": "naive"}]},
    "/lessons/shape-of-a-batch/runs": {"visitor": "ada"},
}


def public(**limits: int) -> Settings:
    return Settings(public=True, instructor_key=KEY, max_model_len=64, **limits)


def engines() -> tuple[FakeBackend, FakeBackend]:
    vllm = FakeBackend("vllm", modes=("async", "blocking"), supported=frozenset({"top_p"}))
    return FakeBackend("naive"), vllm


@asynccontextmanager
async def in_flight(server: Served, client: httpx.AsyncClient, num_pages: int = 0) -> AsyncIterator[None]:
    """A request of each of so many pages, or of one other client, before an engine that stands still."""
    await server.naive.start()
    server.naive.gate.pause()
    pages = [{"Servescope-Visitor": f"page-{number}"} for number in range(num_pages)] or [{}]
    asking = [
        asyncio.create_task(client.post("/generate_stream", json={"prompt": "one"}, headers=page))
        for page in pages
    ]
    await recorded(server.naive.recorder, RequestArrived, len(asking))
    yield
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)


async def test_every_route_that_generates_refuses_a_visitor_beyond_the_share_until_it_is_back() -> None:
    async with serving(*engines(), settings=public(visitor_requests=1)) as server, server.client() as client:
        async with in_flight(server, client):
            for path, body in ASKED.items():
                refused = await client.post(path, json=body)
                told = refused.json()["error"]["message"]
                assert (path, refused.status_code) == (path, 429)
                assert int(refused.headers["retry-after"]) > 0
                assert "You have 1 request waiting or running; 1 is the limit of a visitor" in told
        server.naive.gate.resume()
        for path, body in ASKED.items():
            answered = await until_taken(client, path, body)
            assert (path, answered.status_code) == (path, 200)


async def until_taken(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
    """A client that has gone is noticed soon, but not at once."""
    async with asyncio.timeout(10):
        while (response := await client.post(path, json=body)).status_code == 429:
            pass
    return response


async def test_an_address_has_a_share_for_all_its_pages_races_and_experiments() -> None:
    settings = public(visitor_requests=1, address_requests=3)
    async with (
        serving(*engines(), settings=settings) as server,
        server.client() as client,
        in_flight(server, client, num_pages=3),
    ):
        for path, body in (ASKED | RUNS).items():
            page = {"Servescope-Visitor": "another"} if path in ASKED else {}
            refused = await client.post(path, json=body, headers=page)
            assert (path, refused.status_code) == (path, 429)
            assert "3 is the limit of one address" in refused.json()["error"]["message"]
        key = {"Authorization": f"Bearer {KEY}"}
        race = await client.post("/workloads/races", json=RUNS["/workloads/races"], headers=key)
        assert race.status_code == 202


async def test_a_race_holds_its_share_to_its_end() -> None:
    async with serving(settings=public(address_requests=1)) as server, server.client() as client:
        race = RUNS["/workloads/races"]
        await server.naive.start()
        server.naive.gate.pause()
        race_id = (await client.post("/workloads/races", json=race)).json()["race_id"]
        assert (await client.post("/workloads/races", json=race | {"visitor": "ben"})).status_code == 429
        await client.delete(f"/workloads/races/{race_id}")
        assert (await client.post("/workloads/races", json=race)).status_code == 202


@pytest.mark.parametrize("texts", [{"n": 2}, {"prompt": ["one", "two"]}])
async def test_each_text_of_a_call_counts_and_more_than_the_limit_is_no_question_of_time(
    texts: dict[str, Any],
) -> None:
    naive = FakeBackend("naive", supported=frozenset({"n"}))
    async with serving(naive, settings=public(visitor_requests=1)) as server, server.client() as client:
        refused = await client.post("/v1/completions", json=ASKED["/v1/completions"] | texts)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("2 requests are asked for at once; 1 is the limit")


async def test_without_public_nobody_is_counted() -> None:
    settings = Settings(max_model_len=64, visitor_requests=1)
    async with (
        serving(settings=settings) as server,
        server.client() as client,
        in_flight(server, client),
    ):
        asking = asyncio.create_task(client.post("/generate", json={"prompt": "one"}))
        await recorded(server.naive.recorder, RequestArrived, 2)
        server.naive.gate.resume()
        assert (await asking).status_code == 200
