"""Races over HTTP: started, followed, stopped, refused; and the code that phones read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from backends.api import join
from backends.records import RequestArrived
from backends.settings import Settings
from tests.api.serving import Served, recorded, serving
from tests.fakes import FakeBackend

KEY = "correct horse battery"
PATIENCE = 10
"""Seconds: a limit for what goes wrong."""


def race(*entries: str, visitor: str | None = None, **workload: Any) -> dict[str, Any]:
    """A body; an entry is ``backend`` or ``backend:mode``."""
    named = [entry.partition(":") for entry in entries or ("naive",)]
    body = {
        "workload": {"students": 3, "output_tokens": [4]} | workload,
        "entries": [{"backend": name, "mode": mode or None} for name, _, mode in named],
    }
    return body if visitor is None else body | {"visitor": visitor}


async def begin(client: httpx.AsyncClient, body: dict[str, Any], **options: Any) -> str:
    response = await client.post("/workloads/races", json=body, **options)
    assert response.status_code == 202, response.text
    return str(response.json()["race_id"])


async def follow(client: httpx.AsyncClient, race_id: str) -> list[dict[str, Any]]:
    """Every news of a race, to its end."""
    news: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while not news or news[-1]["state"] not in ("done", "stopped"):
            since = news[-1]["version"] if news else -1
            response = await client.get(f"/workloads/races/{race_id}/events", params={"since": since})
            news.append(response.json())
    return news


async def test_a_race_is_followed_to_its_results() -> None:
    async with serving(FakeBackend("naive"), FakeBackend("paged")) as server, server.client() as client:
        race_id = await begin(client, race("naive", "paged"))
        news = await follow(client, race_id)
        whole = (await client.get(f"/workloads/races/{race_id}")).json()

    assert len(race_id) >= 20
    versions = [told["version"] for told in news]
    assert versions == sorted(set(versions))
    assert whole["state"] == "done"
    assert whole["workload"]["students"] == 3
    for entry in whole["entries"]:
        assert entry["state"] == "done"
        assert entry["result"]["num_complete"] == 3
        assert entry["result"]["engine"]["dtype"]
        assert [len(lane["token_times"]) for lane in entry["result"]["lanes"]] == [4, 4, 4]


async def test_no_word_of_a_prompt_is_in_a_result() -> None:
    async with serving() as server, server.client() as client:
        race_id = await begin(client, race(shared_words=9))
        await follow(client, race_id)
        text = (await client.get(f"/workloads/races/{race_id}")).text

    for word in ("Student", "asks", "river", "stone", "market"):
        assert word not in text


async def test_the_default_mode_is_named_and_another_can_be_raced_against_it() -> None:
    engine = FakeBackend("generate", modes=("sequential", "static"))
    async with serving(engine) as server, server.client() as client:
        race_id = await begin(client, race("generate", "generate:static"))
        told = (await follow(client, race_id))[-1]

    assert [entry["mode"] for entry in told["entries"]] == ["sequential", "static"]


async def test_delete_stops_all_of_it() -> None:
    async with serving(FakeBackend(step_seconds=0.05)) as server, server.client() as client:
        race_id = await begin(client, race())
        await recorded(server.naive.recorder, RequestArrived, 3)
        stopped = (await client.delete(f"/workloads/races/{race_id}")).json()
        assert stopped["state"] == "stopped"
        await until_free(server.naive)
        again = await client.delete(f"/workloads/races/{race_id}")

    assert (again.status_code, again.json()["state"]) == (200, "stopped")


async def test_a_visitor_who_leaves_takes_their_race_along() -> None:
    async with serving(FakeBackend(step_seconds=0.05)) as server, server.client() as client:
        async with server.feed("?visitor=me"):
            race_id = await begin(client, race(visitor="me", arrivals="uniform", window=30))
            await recorded(server.naive.recorder, RequestArrived)
        news = await follow(client, race_id)
        assert news[-1]["state"] == "stopped"
        await until_free(server.naive)


async def test_a_second_race_of_a_visitor_is_a_429_that_says_when_to_try_again() -> None:
    async with serving(FakeBackend(step_seconds=0.05)) as server, server.client() as client:
        race_id = await begin(client, race(visitor="me"))
        again = await client.post("/workloads/races", json=race(visitor="me"))
        other = await begin(client, race(visitor="other"))
        told = (await client.get(f"/workloads/races/{other}")).json()
        await client.delete(f"/workloads/races/{race_id}")

    assert again.status_code == 429
    assert int(again.headers["retry-after"]) > 0
    assert (told["state"], told["place"]) == ("queued", 1)


async def until_free(engine: FakeBackend) -> None:
    async with asyncio.timeout(PATIENCE):
        while engine.num_in_flight:
            await engine.recorder.wait_for(engine.recorder.version + 1)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (race(students=0), 422, ("workload.students", "got 0")),
        (race(students=65), 422, ("workload.students", "65")),
        (race(students="3"), 422, ("workload.students", "'3'")),
        (race(arrivals="flood"), 422, ("workload.arrivals", "flood")),
        (race(window=-1), 422, ("workload.window", "-1")),
        (race(output_tokens=[]), 422, ("workload.output_tokens", "[]")),
        (race(output_tokens=[0]), 422, ("workload.output_tokens", "0")),
        (race(output_tokens=[4000]), 400, ("output_tokens", "4000", "512")),
        (race(shared_words=1500, prompt_words=[1, 600]), 400, ("prompt_words", "2100", "2000")),
        (race(teachers=1), 422, ("workload", "teachers")),
        (race("nobody"), 404, ("nobody", "naive")),
        (race("naive:static"), 400, ("static", "none")),
        (race("naive", "naive"), 400, ("twice",)),
        (race(*["naive"] * 5), 422, ("entries", "4")),
        (race(visitor="no spaces"), 422, ("visitor",)),
        (race() | {"entries": []}, 422, ("entries",)),
        (race() | {"workload": 3}, 422, ("workload",)),
        (race() | {"more": 1}, 422, ("more",)),
    ],
)
async def test_what_is_wrong_is_named(body: dict[str, Any], status: int, words: tuple[str, ...]) -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/workloads/races", json=body)

    assert response.status_code == status
    for word in words:
        assert word in response.json()["error"]["message"] + str(response.json()["error"]["field"])


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with serving() as server, server.client() as client:
        body = race() | {"visitor": "x" * 2_000_000}
        assert (await client.post("/workloads/races", json=body)).status_code == 413


async def test_there_is_no_race_of_another_id() -> None:
    async with serving() as server, server.client() as client:
        answers = [
            await client.get("/workloads/races/nothing"),
            await client.get("/workloads/races/nothing/events"),
            await client.delete("/workloads/races/nothing"),
        ]
        badly = await client.get("/workloads/races/nothing/events?since=x")

    assert [answer.status_code for answer in answers] == [404] * 3
    assert badly.status_code == 422


# Without the key


def with_key() -> Settings:
    return Settings(max_model_len=64, public=True, instructor_key=KEY)


async def asked_with(body: dict[str, Any], **headers: str) -> httpx.Response:
    async with serving(settings=with_key()) as server, server.client() as client:
        return await client.post("/workloads/races", json=body, headers=headers)


async def test_without_the_key_a_workload_is_small() -> None:
    assert (await asked_with(race(students=16))).status_code == 202
    refused = await asked_with(race(students=17))
    assert refused.status_code == 401
    assert "17" in refused.text
    assert "16" in refused.text
    assert (await asked_with(race(output_tokens=[4, 65]))).status_code == 401
    assert (await asked_with(race(window=31))).status_code == 401


async def test_with_the_key_it_may_be_large_and_a_wrong_key_is_an_error() -> None:
    assert (await asked_with(race(students=17), authorization=f"Bearer {KEY}")).status_code == 202
    assert (await asked_with(race(), authorization="Bearer wrong")).status_code == 401


async def test_the_page_is_told_what_it_may_offer() -> None:
    engines = FakeBackend("naive"), FakeBackend("generate", modes=("sequential", "static"))
    async with serving(*engines, settings=with_key()) as server, server.client() as client:
        small = (await client.get("/workloads/options")).json()
        large = (await client.get("/workloads/options", headers={"authorization": f"Bearer {KEY}"})).json()

    assert [engine["modes"] for engine in small["engines"]] == [[], ["sequential", "static"]]
    assert (small["limits"]["students"], large["limits"]["students"]) == (16, 64)


# The link and its code


async def qr(server: Served, link: str) -> httpx.Response:
    async with server.client() as client:
        return await client.get("/qr.svg", params={"link": link})


async def test_a_link_to_this_server_becomes_a_picture() -> None:
    async with serving() as server:
        short = await qr(server, f"http://{server.address}/?tab=playground&view=chat")
        long = await qr(server, f"http://{server.address}/?{'x' * 300}")

    assert short.headers["content-type"] == "image/svg+xml"
    assert short.text.startswith("<svg")
    assert len(long.content) > len(short.content)


@pytest.mark.parametrize(
    "link", ["http://example.com/", "javascript:alert(1)", "ftp://{here}/", "", "http://[", "{long}"]
)
async def test_a_link_to_anywhere_else_does_not(link: str) -> None:
    async with serving() as server:
        long = f"http://{server.address}/?{'x' * 600}"
        response = await qr(server, link.format(here=server.address, long=long))

    assert response.status_code in (400, 422)
    assert "link" in json.dumps(response.json())


async def test_a_link_to_this_machines_address_is_this_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "own_hosts", lambda: ["192.168.7.5"])
    async with serving() as server:
        assert (await qr(server, "http://192.168.7.5:7860/")).status_code == 200
        assert (await qr(server, "http://192.168.7.6:7860/")).status_code == 400


async def test_addresses_are_told_where_phones_could_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "own_hosts", lambda: ["192.168.7.5"])
    everywhere = "0.0.0.0"
    cases = [
        (Settings(), {"loopback_only": True, "hosts": []}),
        (Settings(host=everywhere), {"loopback_only": False, "hosts": ["192.168.7.5"]}),
        (Settings(host=everywhere, public=True), {"loopback_only": False, "hosts": []}),
    ]
    for settings, told in cases:
        async with serving(settings=settings) as server, server.client() as client:
            assert (await client.get("/join")).json() == told
