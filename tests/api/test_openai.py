"""The ``/v1`` routes as OpenAI's own client sees them: models and answers."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from backends.errors import EngineUnavailable
from backends.records import RequestArrived, Source
from backends.settings import Settings
from tests.api.openai_client import HELLO, asking
from tests.api.serving import recorded, serving
from tests.fakes import FakeBackend

# Models


async def test_each_engine_that_can_run_is_a_model() -> None:
    broken = FakeBackend("generate", unavailable="no library")
    async with asking(FakeBackend("naive"), broken, FakeBackend("paged")) as (_, client):
        with pytest.raises(EngineUnavailable):
            await broken.start()
        models = (await client.models.list()).data

        assert [model.id for model in models] == ["naive", "paged"]
        assert {model.owned_by for model in models} == {"servescope"}
        assert (await client.models.retrieve("paged")).id == "paged"
        with pytest.raises(openai.NotFoundError, match="no library"):
            await client.models.retrieve("generate")


# Answers


async def test_a_chat_is_answered_with_exact_usage() -> None:
    async with asking() as (server, client):
        answer = await client.chat.completions.create(model="naive", messages=HELLO, max_tokens=4)

        [arrived] = await recorded(server.naive.recorder, RequestArrived)
        [choice] = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", " a b c d")
        assert choice.finish_reason == "length"
        assert (answer.model, answer.object) == ("naive", "chat.completion")
        assert answer.id == f"chatcmpl-{arrived.request_id}"
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == arrived.num_prompt_tokens == 3  # user: say it
        assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (4, 7)
        assert (arrived.source, arrived.stream) == (Source.API, False)


async def test_a_chat_streams_its_role_with_the_first_token_then_tokens_then_its_end() -> None:
    two_words = FakeBackend(script=lambda index: [" one", " two", None][index])
    async with asking(two_words) as (_, client):
        stream = await client.chat.completions.create(model="naive", messages=HELLO, stream=True)
        chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas] == ["assistant", None, None]
    assert [delta.content for delta in deltas] == [" one", " two", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all("usage" not in chunk.model_dump(exclude_unset=True) for chunk in chunks)


async def test_a_stream_ends_with_its_usage_where_that_is_asked_for() -> None:
    async with asking() as (_, client):
        stream = await client.chat.completions.create(
            model="naive",
            messages=HELLO,
            max_tokens=2,
            stream=True,
            stream_options={"include_usage": True},
        )
        *before, last = [chunk async for chunk in stream]

    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 2)
    assert all(chunk.model_dump(exclude_unset=True)["usage"] is None for chunk in before)


async def test_the_frames_of_a_stream_are_as_openai_writes_them() -> None:
    async with serving() as server, server.client() as client:
        body = {"model": "naive", "prompt": "one", "max_tokens": 1, "stream": True}
        response = await client.post("/v1/completions", json=body)

    assert response.headers["content-type"].startswith("text/event-stream")
    frame, done, rest = response.text.split("\n\n")
    [choice] = json.loads(frame.removeprefix("data: "))["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" a", "length")
    assert (done, rest) == ("data: [DONE]", "")


async def test_a_stream_that_uses_up_its_tokens_has_a_frame_for_each() -> None:
    async with asking() as (_, client):
        stream = await client.chat.completions.create(
            model="naive",
            messages=HELLO,
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore[typeddict-unknown-key]
        )
        *frames, last = [chunk async for chunk in stream]

    assert [frame.choices[0].delta.content for frame in frames] == [" a", " b", " c"]
    assert [frame.choices[0].finish_reason for frame in frames] == [None, None, "length"]
    assert [frame.usage.completion_tokens for frame in [*frames, last] if frame.usage] == [1, 2, 3, 3]


async def test_a_completion_is_answered_whole_and_streamed() -> None:
    async with asking() as (_, client):
        whole = await client.completions.create(model="naive", prompt="one two", max_tokens=3)
        stream = await client.completions.create(model="naive", prompt="one two", max_tokens=3, stream=True)
        texts = [chunk.choices[0].text async for chunk in stream]

    assert whole.choices[0].text == "".join(texts) == " a b c"
    assert whole.object == "text_completion"
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (2, 3)


async def test_several_prompts_are_several_choices_in_one_batch() -> None:
    async with asking() as (server, client):
        answer = await client.completions.create(model="naive", prompt=["one", "one two"], max_tokens=2)
        arrived = await recorded(server.naive.recorder, RequestArrived, 2)

    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, " a b"), (1, " a b")]
    assert [record.num_prompt_tokens for record in arrived] == [1, 2]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)


async def test_an_answer_may_take_what_is_left_unless_it_says_otherwise() -> None:
    limits = Settings(max_model_len=64, max_tokens=50)
    async with asking(settings=limits) as (server, client):
        for prompt in ("one", "one " * 60):
            await client.completions.create(model="naive", prompt=prompt)
        await client.chat.completions.create(model="naive", messages=HELLO, max_completion_tokens=2)

        arrived = await recorded(server.naive.recorder, RequestArrived, 3)
        assert [record.max_tokens for record in arrived] == [50, 4, 2]


async def test_messages_reach_the_template_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[dict[str, str]] = []

    async def capture(messages: list[dict[str, str]]) -> str:
        rendered.extend(messages)
        return "a prompt"

    async with asking() as (server, client):
        monkeypatch.setattr(server.naive, "render_chat", capture)
        parts: Any = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
        answer = await client.chat.completions.create(
            model="naive",
            max_tokens=1,
            messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}],
        )

    assert rendered == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2


async def test_an_answer_can_be_sent_back_as_it_came() -> None:
    async with asking() as (_, client):
        answer = await client.chat.completions.create(model="naive", messages=HELLO, max_tokens=1)
        said: Any = answer.choices[0].message.model_dump()
        again = await client.chat.completions.create(model="naive", messages=[*HELLO, said], max_tokens=1)

    assert again.choices[0].message.content == " a"
