"""What ``/v1`` refuses, in OpenAI's shape and with the name of the field."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.api.openai_client import HELLO, asking
from tests.api.serving import serving

IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"seed": 1}, "seed"),
        ({"stop": "x"}, "stop"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_k": 5}, "top_k"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"top_k": -2}, "top_k"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 8, "ignore_eos": True}, "min_tokens"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"top_p": 0.5}, "top_p"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 10**9}, "max_completion_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", "\ud800"]}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"surprise": 1}, "surprise"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": IMAGE}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": "word " * 70}]}, "messages"),
        ({"model": 5}, "model"),
    ],
    ids=lambda value: ascii(value)[:50],
)
async def test_what_cannot_be_honoured_is_refused_by_name(change: dict[str, Any], param: str) -> None:
    body = json.dumps({"model": "naive", "messages": HELLO} | change)
    async with serving() as server, server.client() as client:
        response = await client.post(
            "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
        assert server.naive.num_in_flight == 0

    error = response.json()["error"]
    assert response.status_code == 400, response.text
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert error["code"] == "invalid_request"


async def test_fields_that_ask_for_nothing_pass() -> None:
    async with asking() as (_, client):
        answer = await client.chat.completions.create(
            model="naive",
            messages=HELLO,
            max_tokens=1,
            n=1,
            top_p=1,
            presence_penalty=0,
            frequency_penalty=0,
            logit_bias={},
            response_format={"type": "text"},
            tool_choice="none",
            user="someone",
            metadata={"course": "serving"},
            extra_body={"tools": None, "seed": None, "stop": None, "temperature": None, "new": None},
        )

    assert answer.choices[0].message.content == " a"


@pytest.mark.parametrize("prompt", ["", "  ", [], ["one", ""], [1, "one"], [True], 5, None, ["one"] * 257])
async def test_a_prompt_that_is_no_text_is_refused(prompt: Any) -> None:
    async with asking() as (server, client):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.completions.create(model="naive", prompt=prompt)
        assert server.naive.num_in_flight == 0

    assert refused.value.param == "prompt"


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]], [[1], []]])
async def test_token_ids_are_refused_by_an_engine_of_texts(prompt: Any) -> None:
    async with asking() as (_, client):
        with pytest.raises(openai.BadRequestError, match="as text, not as token ids") as refused:
            await client.completions.create(model="naive", prompt=prompt)

    assert refused.value.param == "prompt"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"model": ', "not valid JSON"),
        (b'{"model": "\xff"}', "not UTF-8"),
        (b"[]", "The body"),
        (b"[" * 100_000, "error parsing the body"),
        (b'{"seed": ' + b"1" * 5000 + b"}", "error parsing the body"),
        (b'{"\\ud800": 1}', "The body: "),
        (b"", "The body is missing"),
    ],
)
async def test_a_body_that_is_no_json_object_is_a_400_in_openais_shape(content: bytes, words: str) -> None:
    async with serving() as server, server.client() as client:
        response = await client.post(
            "/v1/completions", content=content, headers={"content-type": "application/json"}
        )

    error = response.json()["error"]
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] is None
    assert words in error["message"]


async def test_a_body_that_is_too_large_is_a_413() -> None:
    async with asking() as (_, client):
        with pytest.raises(openai.APIStatusError) as refused:
            await client.completions.create(model="naive", prompt="x" * (1024 * 1024 + 1))

    assert refused.value.status_code == 413
    assert refused.value.code == "body_too_large"


async def test_an_unknown_model_is_not_found() -> None:
    async with asking() as (_, client):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.chat.completions.create(model="gpt", messages=HELLO)

    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert "naive" in refused.value.message
