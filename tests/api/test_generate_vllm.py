"""``/generate_vllm``: the article's last route. Several prompts at once: ``tests/vllm``."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from backends.records import FinishReason, RequestArrived, RequestFinished, State
from tests.api.serving import recorded, serving
from tests.fakes import FakeBackend


def fake_vllm(**options: Any) -> FakeBackend:
    return FakeBackend("vllm", modes=("async", "blocking"), supported=frozenset({"top_p"}), **options)


async def test_no_prompts_give_no_texts_and_start_nothing() -> None:
    vllm = fake_vllm()
    async with serving(vllm) as server, server.client() as client:
        response = await client.post("/generate_vllm", json={"prompts": []})

        assert (response.status_code, response.json()) == (200, {"generated_texts": []})
        assert vllm.num_in_flight == 0
        assert vllm.state.state is State.IDLE


async def test_a_wrong_field_is_a_422_that_names_prompts() -> None:
    async with serving(fake_vllm()) as server, server.client() as client:
        response = await client.post("/generate_vllm", json={"invalid_field": ["One"]})

    assert response.status_code == 422
    assert ["body", "prompts"] in [error["loc"] for error in response.json()["detail"]]


async def test_a_prompt_gives_its_text_after_vllms_own_sixteen_tokens() -> None:
    vllm = fake_vllm()
    async with serving(vllm) as server, server.client() as client:
        response = await client.post("/generate_vllm", json={"prompts": ["one two"]})

        [arrived] = await recorded(vllm.recorder, RequestArrived)
        assert len(response.json()["generated_texts"][0].split()) == 16
        assert (arrived.max_tokens, arrived.stream) == (16, False)


@pytest.mark.parametrize(
    ("body", "query", "status", "said"),
    [
        ({"prompts": ["one"] * 257}, "", 400, "256"),
        ({"prompts": [""]}, "", 400, "empty"),
        ({"prompts": ["one", 2]}, "", 422, "string"),
        ({"prompts": "one"}, "", 422, "list"),
        ({"prompts": ["\ud800"]}, "", 422, "surrogate"),
        ({"prompts": ["one"], "max_tokens": 0}, "", 400, "max_tokens is 0"),
        ({"prompts": ["one"], "temperature": 9}, "", 400, "temperature is 9"),
        ({"prompts": ["one"]}, "?mode=turbo", 422, "blocking"),
    ],
)
async def test_what_cannot_be_served_is_refused_in_words(
    body: dict[str, Any], query: str, status: int, said: str
) -> None:
    vllm = fake_vllm()
    async with serving(vllm) as server, server.client() as client:
        response = await client.post(
            f"/generate_vllm{query}", content=json.dumps(body), headers={"content-type": "application/json"}
        )

        assert (response.status_code, said in response.text) == (status, True), response.text
        assert vllm.num_in_flight == 0
        assert vllm.state.state is State.IDLE


async def test_where_vllm_is_not_offered_the_route_says_what_there_is() -> None:
    async with serving() as server, server.client() as client:
        response = await client.post("/generate_vllm", json={"prompts": ["one"]})

    assert response.status_code == 404
    assert "There are: naive" in response.text


async def test_a_client_that_goes_takes_its_call_with_it() -> None:
    vllm = fake_vllm()
    vllm.gate.pause()
    async with serving(vllm) as server, server.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(
                "/generate_vllm", json={"prompts": ["one"]}, timeout=httpx.Timeout(20, read=0.5)
            )

        [finished] = await recorded(vllm.recorder, RequestFinished)
        assert finished.reason is FinishReason.ABORT
