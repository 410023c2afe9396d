"""``/v1`` in front of a server that is elsewhere: its counts, its names of tokens, its refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from backends.remote.engine import RemoteBackend
from backends.settings import Settings
from tests.api.serving import records_until, serving
from tests.remote_servers.base import WORDS, RemoteServer, running
from tests.remote_servers.dialects import LlamaCpp, LlamaCppPython, Ollama, Vllm

HELLO: Any = [{"role": "user", "content": "Hello"}]
TEXT = "".join(WORDS)


@asynccontextmanager
async def asking(server: RemoteServer) -> AsyncIterator[tuple[RemoteBackend, AsyncOpenAI]]:
    """OpenAI's client of this server, which is a client of that one."""
    async with running(server) as address:
        engine = RemoteBackend(Settings(remote_url=(address,)))
        async with (
            serving(engine) as served,
            AsyncOpenAI(
                base_url=f"http://{served.address}/v1",
                api_key="none",
                max_retries=0,
                http_client=httpx.AsyncClient(trust_env=False, timeout=20),
            ) as client,
        ):
            yield engine, client


@pytest.mark.parametrize("server", [Vllm(tokens_per_chunk=2), Ollama(tokens_per_chunk=2), LlamaCpp()])
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_is_the_servers_own(server: RemoteServer, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    async with asking(server) as (_, client):
        answer: Any = await client.chat.completions.create(
            model="remote", messages=HELLO, max_tokens=9, stream=stream, **options
        )
        if stream:
            chunks = [chunk async for chunk in answer]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            usage = chunks[-1].usage
        else:
            text, usage = answer.choices[0].message.content, answer.usage
    assert text == TEXT
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 5, 12)


async def test_where_the_server_does_not_count_there_is_no_usage() -> None:
    async with asking(LlamaCppPython()) as (_, client):
        answer = await client.chat.completions.create(model="remote", messages=HELLO, max_tokens=9)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is None


async def test_the_server_renders_the_messages_by_its_own_template() -> None:
    server = Vllm()
    messages: Any = [{"role": "developer", "content": "be brief"}, *HELLO]
    async with asking(server) as (_, client):
        await client.chat.completions.create(model="remote", messages=messages, max_tokens=9)
        await client.completions.create(model="remote", prompt=["one", "two"], max_tokens=9)
    [chat, *completions] = server.asked
    assert chat["messages"] == [{"role": "system", "content": "be brief"}, *HELLO]
    assert "prompt" not in chat
    assert sorted(body["prompt"] for body in completions) == ["one", "two"]


async def test_the_most_likely_tokens_have_the_names_that_the_server_gives_them() -> None:
    async with asking(Vllm()) as (_, client):
        chat = await client.chat.completions.create(
            model="remote", messages=HELLO, max_tokens=2, logprobs=True, top_logprobs=2
        )
        completion = await client.completions.create(model="remote", prompt="a", max_tokens=2, logprobs=2)
    [first, second] = chat.choices[0].logprobs.content
    assert (first.token, first.logprob) == ("Once", -0.5)
    assert [(top.token, top.logprob) for top in second.top_logprobs] == [(" upon", -0.5), (" x", -1.5)]
    assert completion.choices[0].logprobs.tokens == ["Once", " upon"]
    assert completion.choices[0].logprobs.top_logprobs[1] == {" upon": -0.5, " x": -1.5}


async def test_n_texts_are_n_choices() -> None:
    async with asking(Vllm()) as (_, client):
        answer = await client.chat.completions.create(model="remote", messages=HELLO, max_tokens=3, n=2)
    assert [choice.message.content for choice in answer.choices] == ["Once upon a"] * 2
    assert answer.usage.completion_tokens == 6
    assert answer.usage.prompt_tokens == 7


async def test_the_servers_refusal_is_a_400_in_its_words_with_the_field() -> None:
    async with asking(Vllm()) as (_, client):
        with pytest.raises(openai.BadRequestError, match="greater than max_model_len=256") as refused:
            await client.chat.completions.create(model="remote", messages=HELLO, max_tokens=400)
    assert refused.value.param == "max_tokens"


async def test_what_this_kind_of_server_cannot_honour_is_a_400_with_the_field() -> None:
    server = Ollama()
    async with asking(server) as (engine, client):
        await engine.start()
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="remote", messages=HELLO, extra_body={"top_k": 5})
    assert refused.value.param == "top_k"
    assert server.asked == []


async def test_a_server_that_is_gone_is_a_503() -> None:
    engine = RemoteBackend(Settings(remote_url=("http://127.0.0.1:9",)))
    async with serving(engine) as served, served.client() as client:
        body = {"model": "remote", "messages": HELLO}
        response = await client.post("/v1/chat/completions", json=body)
        models = (await client.get("/v1/models")).json()["data"]
    assert response.status_code == 503
    assert response.json()["error"]["message"].startswith("The server cannot be reached")
    assert [(model["id"], model["root"]) for model in models] == [("remote", None)]


async def test_the_models_root_is_the_servers_model() -> None:
    async with asking(Ollama()) as (engine, client):
        await engine.start()
        [model] = (await client.models.list()).data
    assert (model.id, model.root) == ("remote", "smollm2:135m")


async def test_what_the_server_counted_is_in_our_own_metrics() -> None:
    async with running(Ollama(tokens_per_chunk=5)) as address:
        engine = RemoteBackend(Settings(remote_url=(address,)))
        async with (
            serving(engine) as served,
            served.client() as client,
            served.feed("?backend=remote") as feed,
        ):
            await client.post("/v1/completions", json={"model": "remote", "prompt": "a", "max_tokens": 9})
            await records_until(feed, "finished")  # what a viewer has seen is counted
            text = (await client.get("/metrics")).text
    assert 'servescope_prompt_tokens_total{backend="remote"} 7.0' in text
    assert 'servescope_output_tokens_total{backend="remote"} 5.0' in text
