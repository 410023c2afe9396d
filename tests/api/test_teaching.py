"""``/generate`` and ``/generate_stream``: what a client gets, and what happens when it goes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from backends.api import teaching
from backends.api.sse import sse_frame
from backends.base import ControlAction
from backends.records import FinishReason, RequestArrived, RequestFinished, StepRecord, TokenEmitted
from backends.settings import Settings
from tests.api.serving import recorded, serving
from tests.fakes import FakeBackend

FOUR_TOKENS = {"prompt": "one two three", "max_tokens": 4}


def tokens_of(text: str) -> list[dict[str, Any]]:
    """Every frame of a stream; each must be exactly ``data: {…}`` and an empty line."""
    frames = text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def test_a_whole_answer_comes_with_its_sequence_id() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/generate", json=FOUR_TOKENS)

        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        assert response.status_code == 200
        assert response.json() == {"sequence_id": arrived.request_id, "generated_text": " a b c d"}
        assert not arrived.stream


async def test_twenty_tokens_at_temperature_0_7_are_the_default() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/generate", json={"prompt": "one"})

        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        assert arrived.max_tokens == 20
        assert len(response.json()["generated_text"].split()) == 20
    assert teaching.GenerateBody(prompt="one").temperature == 0.7


async def test_a_stream_has_one_frame_a_token_and_nothing_else() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/generate_stream", json=FOUR_TOKENS)

        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        sequence_id = arrived.request_id
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.text.startswith(f'data: {{"token": " a", "sequence_id": "{sequence_id}"}}\n\n')
        assert tokens_of(response.text) == [
            {"token": text, "sequence_id": sequence_id} for text in (" a", " b", " c", " d")
        ]


async def test_a_token_that_is_half_a_character_gives_a_frame_with_nothing_in_it() -> None:
    halves = FakeBackend(script=lambda index: ["", "한", "", "국"][index])
    async with serving(halves) as server, server.client() as client:
        response = await client.post("/generate_stream", json=FOUR_TOKENS)

    assert [frame["token"] for frame in tokens_of(response.text)] == ["", "한", "", "국"]
    assert "한" in response.text


async def test_text_with_every_kind_of_line_end_stays_one_frame() -> None:
    text = 'a\nb\r\n\n\x85\u2028\u2029"data: '
    frame = sse_frame({"token": text})

    assert frame.endswith("\n\n")
    assert len(frame.splitlines()) == 2
    assert json.loads(frame.removeprefix("data: "))["token"] == text


async def test_a_token_arrives_while_the_engine_is_held_before_the_next() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        async with asyncio.TaskGroup() as tasks:
            streaming = tasks.create_task(client.send(_post(client, FOUR_TOKENS), stream=True))
            await recorded(server.naive.recorder, RequestArrived)
            await server.naive.control(ControlAction.STEP)
        response = streaming.result()
        frames = response.aiter_text()

        assert json.loads((await anext(frames)).removeprefix("data: "))["token"] == " a"
        await server.naive.control(ControlAction.STEP)
        assert json.loads((await anext(frames)).removeprefix("data: "))["token"] == " b"
        assert len(await recorded(server.naive.recorder, TokenEmitted, 2)) == 2
        await response.aclose()


def _post(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Request:
    return client.build_request("POST", "/generate_stream", json=body)


async def test_requests_at_once_share_the_steps() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(client.post("/generate_stream", json=FOUR_TOKENS)) for _ in range(2)]
            await recorded(server.naive.recorder, RequestArrived, 2)
            server.naive.gate.resume()
        steps = await recorded(server.naive.recorder, StepRecord, 4)

    assert [step.input_shape for step in steps] == [[2, 3], [2, 4], [2, 5], [2, 6]]
    assert [len(tokens_of(answer.result().text)) for answer in answers] == [4, 4]


async def test_a_stream_whose_client_goes_is_aborted() -> None:
    async with serving() as server, server.client() as client:
        async with client.stream(
            "POST", "/generate_stream", json={"prompt": "a", "max_tokens": 60}
        ) as response:
            server.naive.gate.pause()
            await anext(response.aiter_bytes())

        [finished] = await recorded(server.naive.recorder, RequestFinished)
        assert finished.reason is FinishReason.ABORT
        assert server.naive.num_in_flight == 0


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_a_client_that_goes_before_the_first_token_is_aborted(path: str) -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        asking = asyncio.create_task(client.post(path, json=FOUR_TOKENS))
        await recorded(server.naive.recorder, RequestArrived)
        asking.cancel()

        [finished] = await recorded(server.naive.recorder, RequestFinished)
        assert finished.reason is FinishReason.ABORT
        assert server.naive.num_in_flight == 0


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_an_engine_that_dies_before_the_first_token_is_a_503(path: str) -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        asking = asyncio.create_task(client.post(path, json=FOUR_TOKENS))
        await recorded(server.naive.recorder, RequestArrived)
        server.naive.die("The worker was killed.")
        response = await asking

    assert response.status_code == 503
    assert response.json() == {
        "error": {"code": "engine_died", "message": "The worker was killed.", "field": None}
    }


async def test_an_engine_that_dies_midway_ends_the_stream_with_an_error_frame() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(client.post("/generate_stream", json=FOUR_TOKENS))
            await recorded(server.naive.recorder, RequestArrived)
            server.naive.gate.step()
            await recorded(server.naive.recorder, TokenEmitted)
            server.naive.die("The worker was killed.")
        frames = asking.result().text.split("\n\n")

        assert json.loads(frames[0].removeprefix("data: "))["token"] == " a"
        event, data = frames[1].split("\n")
        assert event == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["message"] == "The worker was killed."
        assert frames[2:] == [""]


async def test_after_a_death_the_next_prompt_works() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.die()
        response = await client.post("/generate", json=FOUR_TOKENS)

    assert response.json()["generated_text"] == " a b c d"


async def test_a_stream_says_how_far_the_start_is_and_nothing_after_the_first_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(teaching, "PATIENCE", 0.01)
    async with serving() as server, server.client() as client:
        server.naive.may_start.clear()
        async with client.stream("POST", "/generate_stream", json=FOUR_TOKENS) as response:
            text = response.aiter_text()
            comment = await anext(text)
            server.naive.may_start.set()
            rest = "".join([part async for part in text])

    assert comment.startswith(": naive is starting: Loading the weights (50%)\n\n")
    frames = [frame for frame in (comment + rest).split("\n\n") if not frame.startswith(":")]
    assert [json.loads(frame.removeprefix("data: "))["token"] for frame in frames[:-1]] == [
        " a",
        " b",
        " c",
        " d",
    ]
    assert "\n:" not in rest[rest.index("data: ") :]


async def test_a_paused_engine_sends_no_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "PATIENCE", 0.01)
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        async with client.stream("POST", "/generate_stream", json=FOUR_TOKENS) as response:
            assert response.status_code == 200
            server.naive.gate.resume()
            await response.aread()

        assert len(tokens_of(response.text)) == 4


async def test_an_engine_that_cannot_run_is_a_503_that_says_why() -> None:
    async with (
        serving(FakeBackend(unavailable="torch is not installed.")) as server,
        server.client() as client,
    ):
        response = await client.post("/generate", json=FOUR_TOKENS)

    assert response.status_code == 503
    assert response.json()["error"] == {
        "code": "engine_unavailable",
        "message": "torch is not installed.",
        "field": None,
    }


async def test_another_engine_and_another_mode_can_be_chosen() -> None:
    other = FakeBackend("generate", modes=("sequential", "static"), script=lambda index: f" {index}")
    async with serving(FakeBackend(), other) as server, server.client() as client:
        body = {"prompt": "one", "max_tokens": 2}
        response = await client.post("/generate?backend=generate&mode=static", json=body)

    assert response.json()["generated_text"] == " 0 1"


async def test_a_full_queue_is_a_429_that_says_when_to_come_back() -> None:
    settings = Settings(max_model_len=64, max_waiting=1)
    async with serving(settings=settings) as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.pause()
        first = asyncio.create_task(client.post("/generate", json=FOUR_TOKENS))
        await recorded(server.naive.recorder, RequestArrived)
        refused = await client.post("/generate", json=FOUR_TOKENS)
        server.naive.gate.resume()

        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert "1 is the limit" in refused.json()["error"]["message"]
        assert (await first).status_code == 200


async def test_a_prompt_as_long_as_the_model_is_refused_with_both_numbers() -> None:
    async with serving() as server, server.client() as client:
        for path in ("/generate", "/generate_stream"):
            response = await client.post(path, json={"prompt": "word " * 64})

            assert response.status_code == 400
            assert "64 tokens" in response.json()["error"]["message"]
        assert server.naive.num_in_flight == 0
