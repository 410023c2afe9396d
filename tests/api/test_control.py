"""Pause, step, speed, restart, kill: who may, and what each does."""

from __future__ import annotations

import asyncio
import hmac
from itertools import groupby
from typing import Any

import httpx
import pytest

from backends.api.control import check_key, holds_key
from backends.errors import NotAllowed
from backends.records import EngineState, RequestArrived, StepRecord
from backends.settings import Settings
from tests.api.serving import recorded, serving
from tests.fakes import FakeBackend

KEY = "correct horse battery"


def with_key() -> Settings:
    return Settings(max_model_len=64, instructor_key=KEY)


async def test_pause_and_resume_say_the_new_state() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        paused = await client.post("/control/naive/pause")
        resumed = await client.post("/control/naive/resume")

    assert (paused.status_code, paused.json()) == (200, {"state": "paused"})
    assert (resumed.status_code, resumed.json()) == (200, {"state": "ready"})


async def test_a_step_runs_one_step() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        await client.post("/control/naive/pause")
        asking = asyncio.create_task(client.post("/generate", json={"prompt": "a", "max_tokens": 2}))
        await recorded(server.naive.recorder, RequestArrived)
        for _ in range(2):
            assert (await client.post("/control/naive/step")).status_code == 200
        assert (await asking).json()["generated_text"] == " a b"
        assert len(await recorded(server.naive.recorder, StepRecord, 2)) == 2


async def test_a_step_with_nothing_to_compute_or_not_paused_is_a_409() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        running = await client.post("/control/naive/step")
        await client.post("/control/naive/pause")
        idle = await client.post("/control/naive/step")

    assert (running.status_code, idle.status_code) == (409, 409)
    assert "Pause it first" in running.json()["error"]["message"]
    assert "nothing to compute" in idle.json()["error"]["message"]


async def test_speed_sets_slow_motion() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        response = await client.post("/control/naive/speed", json={"step_delay": 0.25})

        assert response.json() == {"state": "ready"}
        assert server.naive.state.step_delay == 0.25


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (None, 400, "step_delay"),
        ({}, 400, "step_delay"),
        ({"step_delay": None}, 400, "step_delay"),
        ({"step_delay": -1}, 400, "-1"),
        ({"step_delay": 1e9}, 400, "from 0 to"),
        ({"step_delay": "1"}, 422, "'1'"),
        ({"step_delay": True}, 422, "True"),
        ({"delay": 1}, 422, "not permitted"),
        ([], 422, "dictionary"),
    ],
)
async def test_a_bad_speed_is_refused_in_words(body: Any, status: int, word: str) -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        response = await client.post("/control/naive/speed", **({} if body is None else {"json": body}))

        assert response.status_code == status
        assert word in response.json()["error"]["message"]
        assert server.naive.state.step_delay == 0


async def test_a_delay_for_another_action_is_not_silently_dropped() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/control/naive/pause", json={"step_delay": 1})

    assert response.status_code == 400


async def test_killing_the_worker_makes_it_restart_and_be_ready() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        killed = await client.post("/control/naive/kill-worker")
        again = await client.post("/generate", json={"prompt": "a", "max_tokens": 1})

        states = [e.record.state for e in server.naive.recorder.since(0) if isinstance(e.record, EngineState)]
        assert killed.status_code == 200
        assert again.status_code == 200
        assert [state for state, _ in groupby(states)] == [
            "idle",
            "starting",
            "ready",
            "crashed",
            "restarting",
            "ready",
        ]


async def test_killing_what_does_not_run_is_a_400() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/control/naive/kill-worker")

    assert response.status_code == 400
    assert "no running process" in response.json()["error"]["message"]


async def test_restart_brings_the_engine_up_anew() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        before = server.naive.recorder.header
        response = await client.post("/control/naive/restart")
        await server.naive.start()

        assert response.json() == {"state": "restarting"}
        assert server.naive.recorder.header != before


@pytest.mark.parametrize(
    ("path", "word"),
    [("/control/nope/pause", "'nope'"), ("/control/naive/explode", "pause, resume, step")],
)
async def test_an_unknown_backend_or_action_is_a_404(path: str, word: str) -> None:
    async with serving() as server, server.client() as client:
        response = await client.post(path)

    assert response.status_code == 404
    assert word in response.json()["error"]["message"]


# Who may


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}!"},
        {"Authorization": KEY},
    ],
)
async def test_without_the_key_control_is_a_401(headers: dict[str, str]) -> None:
    async with serving(settings=with_key()) as server, server.client() as client:
        await server.naive.start()
        response = await client.post("/control/naive/pause", headers=headers)

        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert server.naive.state.state == "ready"
        assert KEY not in response.text


async def test_with_the_key_control_works() -> None:
    async with serving(settings=with_key()) as server, server.client() as client:
        await server.naive.start()
        response = await client.post("/control/naive/pause", headers={"Authorization": f"bearer {KEY}"})

    assert response.json() == {"state": "paused"}


async def test_a_key_that_is_not_ascii_is_compared_too() -> None:
    check_key(Settings(instructor_key="열쇠열쇠열쇠열쇠"), "Bearer 열쇠열쇠열쇠열쇠")
    with pytest.raises(NotAllowed, match="wrong"):
        check_key(with_key(), "Bearer 열쇠")


def test_the_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *given: bool(compared.append(given)))
    assert not holds_key(with_key(), f"Bearer {KEY}")
    assert compared == [(KEY.encode(), KEY.encode())]


@pytest.mark.parametrize("open_to_others", [{"host": "0.0.0.0"}, {"public": True}])
def test_a_server_that_others_reach_is_closed_to_control_when_it_has_no_key(
    open_to_others: dict[str, Any],
) -> None:
    with pytest.raises(NotAllowed):
        check_key(Settings(**open_to_others), None)


async def test_chatting_needs_no_key() -> None:
    async with serving(settings=with_key()) as server, server.client() as client:
        response = await client.post("/generate", json={"prompt": "a", "max_tokens": 1})

    assert response.status_code == 200


async def from_origin(origin: str, **headers: str) -> httpx.Response:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        own = origin.replace("OWN", server.address)
        return await client.post("/control/naive/pause", headers={"Origin": own, **headers})


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "http://OWN.evil.example", "http://["]
)
async def test_a_page_of_another_site_is_a_403(origin: str) -> None:
    response = await from_origin(origin)

    assert response.status_code == 403
    assert response.json()["error"]["code"] == "cross_origin"


async def test_the_servers_own_page_may() -> None:
    assert (await from_origin("http://OWN")).status_code == 200


async def test_the_page_behind_a_proxy_may() -> None:
    response = await from_origin("https://lab.example", **{"X-Forwarded-Host": "lab.example"})

    assert response.status_code == 200


async def test_a_body_that_is_too_large_is_a_413() -> None:
    async with serving(FakeBackend()) as server, server.client() as client:
        response = await client.post("/control/naive/speed", json={"step_delay": "1" * 2_000_000})

    assert response.status_code == 413
