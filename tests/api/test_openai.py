"""The ``/v1`` routes as OpenAI's own client sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import openai
import pytest
from openai import AsyncOpenAI

from backends import admission
from backends.base import ControlAction, GenerationRequest, SamplingParams, TokenChunk
from backends.errors import EngineUnavailable
from backends.records import (
    EngineState,
    FinishReason,
    RequestArrived,
    RequestFinished,
    Source,
    State,
    TokenEmitted,
)
from backends.settings import Settings
from tests.api.serving import Served, recorded, serving
from tests.fakes import FakeBackend

HELLO: Any = [{"role": "user", "content": "say it"}]
EVERY_FIELD = frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs", "prompt_ids"})


class Scripted(FakeBackend):
    """An engine that honours every field, as far as these chunks say."""

    def __init__(self, chunks: Sequence[TokenChunk], name: str = "paged") -> None:
        super().__init__(name)
        self.info = msgspec.structs.replace(self.info, supported=EVERY_FIELD)
        self.chunks = chunks
        self.requests: list[GenerationRequest] = []

    @property
    def asked(self) -> list[SamplingParams]:
        return [request.sampling for request in self.requests]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        admission.check_fields(request, self.info, self.settings)
        self.requests.append(request)
        for chunk in self.chunks:
            yield chunk


class Naming(Scripted):
    """One that also says what the tokens look like that it did not choose."""

    def token_text(self, token_id: int) -> str:
        return f"<{token_id}>"


def end(reason: FinishReason = FinishReason.STOP, *, text: str = "", sample: int = 0) -> TokenChunk:
    return TokenChunk(text=text, index=-1, sample=sample, finish_reason=reason)


@asynccontextmanager
async def asking(
    *backends: FakeBackend, settings: Settings | None = None
) -> AsyncIterator[tuple[Served, AsyncOpenAI]]:
    """A server and OpenAI's client of it."""
    async with (
        serving(*backends, settings=settings) as server,
        AsyncOpenAI(
            base_url=f"http://{server.address}/v1",
            api_key="none",
            max_retries=0,
            http_client=httpx.AsyncClient(trust_env=False, timeout=20),
        ) as client,
    ):
        yield server, client


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


# What an engine that samples can do


async def test_every_sampling_field_reaches_the_engine() -> None:
    paged = Scripted([TokenChunk(text="x", index=0), end()])
    async with asking(paged) as (_, client):
        await client.chat.completions.create(
            model="paged",
            messages=HELLO,
            max_tokens=5,
            temperature=0.5,
            top_p=0.9,
            seed=7,
            stop=["a", "b"],
            extra_body={"top_k": 3, "ignore_eos": True},
        )
        await client.completions.create(model="paged", prompt="one", stop="a", max_tokens=5)

    assert paged.asked[0] == SamplingParams(
        max_tokens=5, temperature=0.5, top_p=0.9, top_k=3, seed=7, stop=("a", "b"), ignore_eos=True
    )
    assert paged.asked[1] == SamplingParams(max_tokens=5, temperature=1.0, stop=("a",))


async def test_token_ids_reach_the_engine_as_they_are() -> None:
    paged = Scripted([TokenChunk(text="x", index=0), end()])
    async with asking(paged) as (_, client):
        one = await client.completions.create(model="paged", prompt=[5, 6, 7])
        two = await client.completions.create(model="paged", prompt=[[5, 6], [7]])

    assert [request.prompt_ids for request in paged.requests] == [(5, 6, 7), (5, 6), (7,)]
    assert {request.prompt for request in paged.requests} == {""}
    assert [choice.text for choice in two.choices] == ["x", "x"]
    assert one.usage is not None
    assert one.usage.prompt_tokens == 3


async def test_what_vllms_clients_write_out_is_understood() -> None:
    paged = Scripted([TokenChunk(text="x", index=0), end()])
    extensions = {"top_k": -1, "ignore_eos": True, "min_tokens": 4, "repetition_penalty": 1.0, "min_p": 0}
    async with asking(paged) as (_, client):
        await client.completions.create(model="paged", prompt="one", max_tokens=4, extra_body=extensions)

    assert paged.asked == [SamplingParams(max_tokens=4, temperature=1.0, ignore_eos=True)]


TWO_SAMPLES = [
    TokenChunk(text="a", index=0, sample=0),
    TokenChunk(text="x", index=0, sample=1),
    TokenChunk(text="", index=1, sample=0),
    end(FinishReason.LENGTH, text="held", sample=0),
    TokenChunk(text="y", index=1, sample=1),
    end(sample=1),
]


async def test_n_texts_are_n_choices_each_with_its_own_end() -> None:
    async with asking(Scripted(TWO_SAMPLES)) as (_, client):
        answer = await client.chat.completions.create(model="paged", messages=HELLO, n=2)

    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices] == [
        (0, "aheld", "length"),
        (1, "xy", "stop"),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)


async def test_n_texts_of_each_of_several_prompts_are_numbered_through() -> None:
    async with asking(Scripted(TWO_SAMPLES)) as (_, client):
        stream = await client.completions.create(model="paged", prompt=["one", "two"], n=2, stream=True)
        texts = dict.fromkeys(range(4), "")
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text

    assert texts == {0: "aheld", 1: "xy", 2: "aheld", 3: "xy"}


WITH_LOGPROBS = [
    TokenChunk(text="한", index=0, logprob=-0.5, top_logprobs=((7, -0.5), (8, -1.5), (7, -3.0))),
    TokenChunk(text="", index=1, logprob=-0.25, top_logprobs=((9, -0.25), (7, -2.0))),
    end(),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_tells_log_probabilities(stream: bool) -> None:
    engine = Naming(WITH_LOGPROBS)
    async with asking(engine) as (_, client):
        answer: Any = await client.chat.completions.create(
            model="paged", messages=HELLO, logprobs=True, top_logprobs=2, stream=stream
        )
        answers = [chunk async for chunk in answer] if stream else [answer]

    told = [one.choices[0].logprobs for one in answers if one.choices[0].logprobs is not None]
    tokens = [token for logprobs in told for token in logprobs.content]
    assert engine.asked[0].logprobs == 2
    assert [(token.token, token.logprob, token.bytes) for token in tokens] == [
        ("한", -0.5, list("한".encode())),
        ("", -0.25, None),
    ]
    assert [(top.token, top.logprob) for top in tokens[0].top_logprobs[:2]] == [
        ("<7>", -0.5),
        ("<8>", -1.5),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_tells_log_probabilities(stream: bool) -> None:
    async with asking(Naming(WITH_LOGPROBS)) as (_, client):
        answer: Any = await client.completions.create(model="paged", prompt="one", logprobs=2, stream=stream)
        answers = [chunk async for chunk in answer] if stream else [answer]

    told = [one.choices[0].logprobs for one in answers if one.choices[0].logprobs is not None]
    assert [token for logprobs in told for token in logprobs.tokens] == ["한", ""]
    assert [value for logprobs in told for value in logprobs.token_logprobs] == [-0.5, -0.25]
    assert [at for logprobs in told for at in logprobs.text_offset] == [0, 1]
    assert told[0].top_logprobs[0] == {"<7>": -0.5, "<8>": -1.5}


async def test_log_probabilities_of_chosen_tokens_need_no_names_of_others() -> None:
    async with asking(Scripted([TokenChunk(text="x", index=0, logprob=-1.0), end()])) as (_, client):
        answer = await client.chat.completions.create(model="paged", messages=HELLO, logprobs=True)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="paged", messages=HELLO, logprobs=True, top_logprobs=1)

    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    assert answer.choices[0].logprobs.content[0].top_logprobs == []
    assert refused.value.param == "top_logprobs"


# Refusals


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
