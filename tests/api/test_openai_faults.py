"""``/v1`` when the queue is full, the engine fails, or the client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from backends.base import ControlAction
from backends.records import EngineState, FinishReason, RequestArrived, RequestFinished, State, TokenEmitted
from backends.settings import Settings
from tests.api.openai_client import HELLO, asking
from tests.api.serving import Served, recorded, serving
from tests.fakes import FakeBackend


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_a_rate_limit(stream: bool) -> None:
    limits = Settings(max_model_len=64, max_waiting=1)
    async with asking(settings=limits) as (server, client):
        await server.naive.start()
        server.naive.gate.pause()
        waiting = asyncio.create_task(client.completions.create(model="naive", prompt="one", max_tokens=1))
        await recorded(server.naive.recorder, RequestArrived)
        with pytest.raises(openai.RateLimitError) as refused:
            await client.completions.create(model="naive", prompt="two", stream=stream)
        server.naive.gate.resume()
        await waiting

    assert refused.value.response.headers["retry-after"] == "5"
    assert refused.value.type == "rate_limit_error"


async def test_an_engine_that_cannot_run_is_a_503_with_the_reason() -> None:
    async with asking(FakeBackend("naive", unavailable="no library")) as (_, client):
        with pytest.raises(openai.InternalServerError, match="no library") as refused:
            await client.completions.create(model="naive", prompt="one")

    assert (refused.value.status_code, refused.value.type) == (503, "server_error")


async def test_an_engine_that_dies_under_a_whole_answer_is_a_503() -> None:
    async with asking() as (server, client):
        await server.naive.start()
        server.naive.gate.pause()
        asked = asyncio.create_task(client.chat.completions.create(model="naive", messages=HELLO))
        await recorded(server.naive.recorder, RequestArrived)
        server.naive.die()
        with pytest.raises(openai.InternalServerError) as failed:
            await asked

    assert (failed.value.status_code, failed.value.code) == (503, "engine_died")


async def test_an_engine_that_dies_midway_is_an_error_in_the_stream() -> None:
    async with asking() as (server, client):
        stream = await _first_token_of_a_held_stream(server, client)
        server.naive.die()
        with pytest.raises(openai.APIError, match="killed") as failed:
            await anext(stream)

    assert failed.value.code == "engine_died"


async def test_a_request_that_something_else_ends_is_no_complete_answer() -> None:
    async with asking() as (server, client):
        stream = await _first_token_of_a_held_stream(server, client)
        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        await server.naive.abort(arrived.request_id)
        with pytest.raises(openai.APIError) as failed:
            await anext(stream)

    assert failed.value.code == "aborted"


async def _first_token_of_a_held_stream(server: Served, client: AsyncOpenAI) -> AsyncIterator[Any]:
    """A stream whose engine is held after one token."""
    await server.naive.start()
    server.naive.gate.pause()
    asked = asyncio.create_task(
        client.chat.completions.create(model="naive", messages=HELLO, stream=True, max_tokens=20)
    )
    await recorded(server.naive.recorder, RequestArrived)
    await server.naive.control(ControlAction.STEP)
    await recorded(server.naive.recorder, TokenEmitted)
    stream = aiter(await asked)
    delta = (await anext(stream)).choices[0].delta
    assert (delta.role, delta.content) == ("assistant", " a")
    return stream


# Clients that go


async def test_a_client_that_leaves_a_stream_ends_its_request() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        server.naive.gate.set_delay(0.01)
        body = {"model": "naive", "prompt": "one", "stream": True, "max_tokens": 60}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            await anext(response.aiter_text())
        [finished] = await recorded(server.naive.recorder, RequestFinished)

        assert finished.reason is FinishReason.ABORT
        assert server.naive.num_in_flight == 0


@pytest.mark.parametrize("prompt", ["one", ["one", "two"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_does_not_wait_ends_all_its_requests(stream: bool, prompt: Any) -> None:
    count = 1 if prompt == "one" else 2
    async with asking() as (server, client):
        await server.naive.start()
        server.naive.gate.pause()
        asked = asyncio.create_task(client.completions.create(model="naive", prompt=prompt, stream=stream))
        await recorded(server.naive.recorder, RequestArrived, count)
        asked.cancel()
        finished = await recorded(server.naive.recorder, RequestFinished, count)

        assert {record.reason for record in finished} == {FinishReason.ABORT}
        assert server.naive.num_in_flight == 0


async def test_a_client_that_goes_while_the_engine_starts_leaves_nothing_behind() -> None:
    async with asking() as (server, client):
        server.naive.may_start.clear()
        asked = asyncio.create_task(client.completions.create(model="naive", prompt="one"))
        await recorded_state(server.naive, State.STARTING)
        asked.cancel()
        await client.models.list()
        server.naive.may_start.set()
        await client.completions.create(model="naive", prompt="one two", max_tokens=1)

        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        assert arrived.num_prompt_tokens == 2


async def recorded_state(backend: FakeBackend, state: State) -> None:
    """Return when the engine has come to this state."""
    count = 1
    while (await recorded(backend.recorder, EngineState, count))[-1].state is not state:
        count += 1


async def test_other_routes_keep_their_own_errors() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/generate", json={"prompt": ""})

    assert response.json()["error"].keys() == {"code", "message", "field"}
