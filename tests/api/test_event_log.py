"""The log has each request's arrival and end, and no word of what was asked or answered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from backends.logs import EventFormatter
from backends.records import RequestArrived, RequestFinished
from backends.settings import Settings
from tests.api.place import place
from tests.api.serving import Served, recorded, serving, text_until
from tests.fakes import FakeBackend
from tests.load.answers import Question, Route
from tests.load.page_chat import PageChat

MARKER = "xylophone"


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.msg == event]  # type: ignore[attr-defined]


async def ask_in_every_way(server: Served) -> None:
    """Whole, streamed, by the other API, given up, and refused."""
    prompt = f"{MARKER} {MARKER}"
    async with server.client() as client:
        await client.post("/generate", json={"prompt": prompt})
        await client.post("/generate_stream", json={"prompt": prompt})
        messages = [{"role": "user", "content": prompt}]
        await client.post("/v1/chat/completions", json={"model": "naive", "messages": messages})
        await client.post("/v1/completions", json={"model": "naive", "prompt": prompt, "seed": MARKER})
        await client.post("/generate", json={"prompt": prompt, "max_tokens": 0, MARKER: 1})
        server.naive.gate.pause()
        leaving = asyncio.create_task(client.post("/generate", json={"prompt": prompt}))
        await recorded(server.naive.recorder, RequestArrived, 4)
        leaving.cancel()
        await recorded(server.naive.recorder, RequestFinished, 4)


async def test_each_request_has_one_line_as_it_arrives_and_one_as_it_ends_and_no_text_is_in_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "backends")
    async with serving() as server, server.feed("?backend=naive") as feed:
        await ask_in_every_way(server)
        await text_until(feed, '"finished"', times=4)
        entries = server.naive.recorder.since(0)

    arrived = [e.record for e in entries if isinstance(e.record, RequestArrived)]
    assert [line["request_id"] for line in events(caplog, "arrived")] == [r.request_id for r in arrived]
    finished = events(caplog, "finished")
    assert {line["request_id"] for line in finished} == {record.request_id for record in arrived}
    assert [line["reason"] for line in finished].count("abort") == 1
    assert len(finished) == 4
    for line in finished:
        assert line["backend"] == "naive"
        assert line["total_s"] >= 0
        if line["reason"] == "length":
            assert 0 <= line["queue_s"] <= line["ttft_s"] <= line["e2e_s"] <= line["total_s"]
            assert line["output_tokens"] > 0
    for record in caplog.records:
        for layout in ("logfmt", "json"):
            assert MARKER not in EventFormatter(layout).format(record)  # type: ignore[arg-type]
    assert caplog.records


async def test_what_is_refused_over_http_is_counted_and_logged_by_its_route_and_never_by_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "backends")
    async with serving() as server, server.client() as client:
        await client.post("/generate", json={"prompt": MARKER, "max_tokens": 0})
        await client.post("/control/naive/" + MARKER)
        await client.get("/" + MARKER)
        await client.request("TRACE", "/health")
        metrics = (await client.get("/metrics")).text

    told = [(line["method"], line["route"], line["status"]) for line in events(caplog, "refused")]
    assert told == [
        ("POST", "/generate", 400),
        ("POST", "/control/{backend}/{action}", 404),
        ("GET", "", 404),
        ("other", "/health", 405),
    ]
    for method, route, status in told:
        labels = f'{{method="{method}",route="{route}",status="{status}"}}'
        assert f"servescope_http_responses_total{labels} 1.0" in metrics
    assert MARKER not in metrics.lower()


async def test_what_the_chat_refuses_is_counted_and_logged_by_its_code_and_never_by_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Over HTTP it is a stream of events like any other."""
    caplog.set_level(logging.INFO, "backends")
    question = Question(Route.CHAT, client=1, prompt=" ".join([MARKER] * 80), max_tokens=4)
    async with place(Settings(), FakeBackend("naive")) as here, here.client() as client:
        page = await PageChat.of(client)
        too_long = await page.ask(client, question, "naive", "ada")
        metrics = (await client.get("/metrics")).text

    assert "The prompt has 81 tokens" in too_long.text
    assert events(caplog, "refused") == [
        {
            "source": "chat",
            "backend": "naive",
            "request_id": too_long.request_id,
            "code": "invalid_request",
            "status": 400,
        }
    ]
    assert 'servescope_chat_errors_total{backend="naive",code="invalid_request"} 1.0' in metrics
    assert MARKER not in metrics + "".join(EventFormatter("json").format(record) for record in caplog.records)


async def test_a_crash_is_an_error_with_its_reason_and_progress_makes_no_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "backends")
    async with serving() as server, server.feed("?backend=naive") as feed:
        await server.naive.start()
        server.naive.die("The worker was killed.")
        await text_until(feed, '"ready"', times=2)

    told = [(record.levelname, record.fields["state"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert told[:6] == [
        ("INFO", "idle"), ("INFO", "starting"), ("INFO", "ready"),
        ("ERROR", "crashed"), ("INFO", "restarting"), ("INFO", "ready"),
    ]  # fmt: skip
    assert events(caplog, "engine")[3]["reason"] == "The worker was killed."
