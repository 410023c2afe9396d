"""Lessons over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from backends.lessons.lesson import read_lesson, slugs
from backends.settings import Settings
from backends.trace import read_trace
from tests.api.serving import Served, serving
from tests.fakes import FakeBackend

PATIENCE = 30


class Engines:
    """Private engines, remembered; slow enough to be stopped midway where asked."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        self.made: list[FakeBackend] = []
        self._step_seconds = step_seconds

    def __call__(self, name: str, /, **settings: Any) -> FakeBackend:
        made = FakeBackend(name, settings=Settings(**settings), step_seconds=self._step_seconds)
        self.made.append(made)
        return made

    async def are_gone(self) -> None:
        async with asyncio.timeout(PATIENCE):
            for engine in self.made:
                while engine.num_in_flight:
                    await engine.recorder.wait_for(engine.recorder.version + 1)


async def events_of(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def run_of(client: httpx.AsyncClient, slug: str = "shape-of-a-batch", **body: str) -> Any:
    return client.stream("POST", f"/lessons/{slug}/runs", json={"visitor": "ada", **body})


async def until(name: str, response: httpx.Response) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        async for event, data in events_of(response):
            if event == name:
                return data
    raise AssertionError(f"no {name} came")


@pytest.mark.parametrize("lang", ["en", "ko"])
async def test_the_list_has_every_lesson_in_the_language_asked_for(lang: str) -> None:
    async with serving() as served, served.client() as client:
        listed = (await client.get("/lessons", params={"lang": lang})).json()["lessons"]

    assert [lesson["slug"] for lesson in listed] == slugs()
    assert [lesson["title"] for lesson in listed] == [read_lesson(slug, lang).title for slug in slugs()]


async def test_a_lesson_brings_its_text_as_html_and_not_its_source() -> None:
    async with serving() as served, served.client() as client:
        lesson = (await client.get("/lessons/shape-of-a-batch")).json()

    assert "<strong>row</strong>" in lesson["html"]
    assert lesson["prediction"]["compares"] == "last_width"
    assert lesson["code"]
    assert "grows with every token" in lesson["after_html"]
    assert "text" not in lesson


async def test_a_run_streams_progress_and_then_what_was_measured() -> None:
    async with (
        serving(make_engine=Engines()) as served,
        served.client() as client,
    ):
        async with run_of(client) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = [event async for event in events_of(response)]

        trace = await client.get(f"/lessons/runs/{events[0][1]['run']}/trace")

    assert events[0][0] == "run"
    assert events[-1][0] == "outcome"
    assert events[-1][1]["engines"] == ["naive"]
    assert read_trace(trace.content.splitlines()).header.backend == "naive"
    assert "lesson-0-naive.trace.jsonl" in trace.headers["content-disposition"]
    values = {measured["name"]: measured["value"] for measured in events[-1][1]["measured"]}
    assert values["last_width"] == values["first_width"] + values["steps"] - 1
    assert {name for name, _ in events[1:-1]} <= {"progress"}


async def test_a_run_that_is_deleted_ends_with_an_event_that_says_so() -> None:
    engines = Engines(step_seconds=0.2)
    async with serving(make_engine=engines) as served, served.client() as client, run_of(client) as response:
        events = events_of(response)
        _, begun = await anext(events)
        deleted = await client.delete(f"/lessons/runs/{begun['run']}")
        *_, (name, data) = [event async for event in events]
        again = await client.delete(f"/lessons/runs/{begun['run']}")

    assert deleted.status_code == 204
    assert (name, data["error"]["code"]) == ("error", "run_stopped")
    assert again.status_code == 404
    await engines.are_gone()


async def test_a_visitor_who_goes_takes_the_run_along() -> None:
    engines = Engines(step_seconds=0.2)
    async with serving(make_engine=engines) as served, served.client() as client:
        async with run_of(client) as response:
            await until("run", response)
        async with asyncio.timeout(PATIENCE):  # the same visitor may begin anew when it is gone
            while (await begun(served)).status_code == 429:
                await asyncio.sleep(0)
        await engines.are_gone()


async def begun(served: Served) -> httpx.Response:
    async with served.client() as client, run_of(client) as response:
        return response


async def test_a_second_run_of_a_visitor_is_refused_with_when_to_come_back() -> None:
    engines = Engines(step_seconds=0.2)
    async with serving(make_engine=engines) as served, served.client() as client, run_of(client) as first:
        await until("run", first)
        async with run_of(client) as second:
            error = json.loads(await second.aread())["error"]

        assert second.status_code == 429
        assert int(second.headers["retry-after"]) > 0
        assert error["code"] == "overloaded"


async def test_a_lesson_whose_engine_is_not_there_says_what_is_missing_and_offers_a_recording() -> None:
    paged = FakeBackend("paged", unavailable="It needs a part that is not installed.")
    async with serving(paged) as served, served.client() as client:
        await asyncio.gather(paged.start(), return_exceptions=True)
        listed = (await client.get("/lessons")).json()["lessons"]
        lesson = (await client.get("/lessons/prefix-caching")).json()
        async with run_of(client, "prefix-caching") as refused:
            error = json.loads(await refused.aread())["error"]

    missing = {lesson["slug"]: lesson["missing"] for lesson in listed}
    assert "naive" in missing["shape-of-a-batch"]
    assert "a part that is not installed" in missing["prefix-caching"]
    assert refused.status_code == 503
    assert error["message"] == missing["prefix-caching"]
    [recording] = lesson["recordings"]
    assert (recording["name"], recording["backend"]) == ("paged-prefix", "paged")
    assert "GiB" in recording["hardware"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/lessons?lang=fr", 400, "'fr'"),
        ("/lessons/nothing", 404, "No lesson 'nothing'"),
        ("/lessons/runs/nothing/trace", 404, "run the experiment again"),
        ("/lessons/..%2F..%2Fapp.py", 404, ""),
    ],
)
async def test_what_is_not_there_is_refused_in_words(path: str, status: int, words: str) -> None:
    async with serving() as served, served.client() as client:
        response = await client.get(path)
    assert response.status_code == status
    assert words in response.text


async def test_a_lesson_with_a_choice_of_engines_runs_on_the_first_or_on_what_was_chosen() -> None:
    engines = Engines()
    offered = [FakeBackend(name) for name in ("naive", "paged", "vllm")]
    async with serving(*offered, make_engine=engines) as served, served.client() as client:
        lesson = (await client.get("/lessons/blocking-against-async")).json()
        async with run_of(client, "blocking-against-async", engine="paged") as response:
            outcome = await until("outcome", response)
        async with run_of(client, "blocking-against-async", engine="naive") as refused:
            error = json.loads(await refused.aread())["error"]
        async with run_of(client, "padding", engine="naive") as no_choice:
            pass

    assert [engine["name"] for engine in lesson["engine_choice"]] == ["vllm", "paged"]
    assert lesson["recordings"] == [], "it can run here"
    assert outcome["engines"] == ["paged"]
    assert (refused.status_code, no_choice.status_code) == (400, 400)
    assert error["message"] == "engine is 'naive'; it must be one of vllm, paged."


@pytest.mark.parametrize("body", [{}, {"visitor": ""}, {"visitor": "a b"}, {"visitor": "a", "more": 1}, []])
async def test_a_run_without_a_proper_visitor_is_refused(body: object) -> None:
    async with serving() as served, served.client() as client:
        response = await client.post("/lessons/shape-of-a-batch/runs", json=body)
    assert response.status_code == 422
