"""OpenAI's own client against every engine of one real server: the same assertions for all.

What an engine cannot honour stands in ``UNSUPPORTED``; asking for it must be a 400 with its name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import httpx
import msgspec
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types import Completion
from websockets.asyncio.client import ClientConnection, connect

from backends.models import prepare_model
from backends.records import AnyRecord, FinishReason, RequestFinished, TokenEmitted, decode_record
from backends.settings import Settings
from backends.text import TextCodec
from tests.app_server import app_server

UNSUPPORTED: dict[str, set[str]] = {
    "naive": {"top_p", "top_k", "seed", "stop", "n", "logprobs", "prompt"},
    "generate": {"n", "logprobs"},
    "paged": set(),
    "vllm": set(),
}
"""Engine → fields of a request that it cannot honour (``prompt``: as token ids)."""
NEEDS = {"vllm": "vllm"}
"""Engine → a library that is not there on every machine."""

ENGINES = [engine for engine in UNSUPPORTED if engine not in NEEDS or find_spec(NEEDS[engine])]
MAX_MODEL_LEN = 256
TALE = "Once upon a time"
HELLO: Any = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is a batch?"},
]
SHORT: Any = [{"role": "user", "content": "What is 1+1? Answer with one number."}]
"""Answered in few tokens."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("engine", ENGINES)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """All engines in one server; each starts when it is first asked."""
    options = ("--backends", ",".join(ENGINES), "--max-model-len", str(MAX_MODEL_LEN), "--num-blocks", "64")
    with app_server(*options) as address:
        yield address


@pytest_asyncio.fixture
async def client(address: str) -> AsyncIterator[AsyncOpenAI]:
    http = httpx.AsyncClient(trust_env=False, timeout=300)
    async with AsyncOpenAI(
        base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=http
    ) as client:
        yield client


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    """Counts tokens without any engine."""
    cache_dir = Settings().cache_dir
    return TextCodec.load(asyncio.run(prepare_model("smollm2", cache_dir, lambda fraction, sentence: None)))


@contextmanager
def honours(engine: str, field: str) -> Iterator[None]:
    """What follows holds; or, where the engine cannot do it, its first request is refused by name."""
    if field not in UNSUPPORTED[engine]:
        yield
        return
    with pytest.raises(openai.BadRequestError) as refused:
        yield
    assert refused.value.param == field
    assert refused.value.code == "invalid_request"


async def trace(address: str, engine: str) -> list[AnyRecord]:
    """Every record that the engine has emitted."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        response = await http.get(f"{address}/telemetry/{engine}/trace")
    return [decode_record(line) for line in response.text.splitlines()]


async def num_emitted(address: str, engine: str, answer_id: str) -> int:
    """Tokens that the engine says it has emitted for an answer."""
    request_id = answer_id.partition("-")[2]
    records = await trace(address, engine)
    return sum(isinstance(record, TokenEmitted) and record.request_id == request_id for record in records)


async def until_finished(feed: ClientConnection, request_id: str) -> RequestFinished:
    """The live feed up to the end of a request."""
    while True:
        for record in json.loads(await feed.recv()):
            if record["type"] == "finished" and record["request_id"] == request_id:
                return msgspec.convert(record, RequestFinished)


async def complete(client: AsyncOpenAI, engine: str, max_tokens: int = 8, **fields: Any) -> Completion:
    """A whole completion, greedy unless said otherwise."""
    fields = {"prompt": TALE, "temperature": 0} | fields
    answer: Completion = await client.completions.create(model=engine, max_tokens=max_tokens, **fields)
    return answer


async def pieces(client: AsyncOpenAI, engine: str, **fields: Any) -> list[str]:
    """What each frame of the same completion says."""
    stream = await client.completions.create(
        model=engine, prompt=TALE, temperature=0, max_tokens=8, stream=True, **fields
    )
    return [chunk.choices[0].text async for chunk in stream]


# Answers


async def test_it_is_a_model(engine: str, client: AsyncOpenAI) -> None:
    assert engine in [model.id for model in (await client.models.list()).data]
    assert (await client.models.retrieve(engine)).id == engine


async def test_a_chat_is_the_same_streamed_and_whole_and_its_usage_is_exact(
    engine: str, client: AsyncOpenAI, codec: TextCodec, address: str
) -> None:
    asked: Any = {"model": engine, "messages": HELLO, "max_completion_tokens": 6, "temperature": 0}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    *frames, last = [chunk async for chunk in stream]

    [choice] = whole.choices
    assert choice.message.content
    assert choice.message.content == "".join(frame.choices[0].delta.content or "" for frame in frames)
    assert choice.finish_reason == frames[-1].choices[0].finish_reason == "length"
    assert frames[0].choices[0].delta.role == choice.message.role == "assistant"
    assert whole.usage is not None
    assert whole.usage == last.usage
    assert whole.usage.prompt_tokens == codec.count_tokens(codec.render_chat(HELLO))
    assert whole.usage.completion_tokens == 6
    assert whole.usage.completion_tokens == await num_emitted(address, engine, whole.id)


async def test_a_completion_is_the_same_streamed_and_whole_and_its_usage_is_exact(
    engine: str, client: AsyncOpenAI, codec: TextCodec
) -> None:
    whole = await complete(client, engine)
    told = await pieces(client, engine)

    [choice] = whole.choices
    assert choice.text == "".join(told)
    assert len(told) == 8
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == codec.count_tokens(TALE)
    assert whole.usage.completion_tokens == codec.count_tokens(choice.text) == 8


async def test_several_prompts_are_several_choices(
    engine: str, client: AsyncOpenAI, codec: TextCodec
) -> None:
    prompts = [TALE, "The capital of France is"]
    alone = [await complete(client, engine, 3, prompt=prompt) for prompt in prompts]
    answer = await complete(client, engine, 3, prompt=prompts)

    assert [choice.text for choice in answer.choices] == [one.choices[0].text for one in alone]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(codec.count_tokens(prompt) for prompt in prompts)
    assert answer.usage.completion_tokens == 6


async def test_an_answer_that_ends_by_itself_says_so_unless_its_end_is_ignored(
    engine: str, client: AsyncOpenAI, address: str
) -> None:
    asked: Any = {"model": engine, "messages": SHORT, "max_tokens": 10, "temperature": 0}
    ended = await client.chat.completions.create(**asked)
    went_on = await client.chat.completions.create(**asked, extra_body={"ignore_eos": True})

    assert ended.choices[0].finish_reason == "stop"
    assert ended.usage is not None
    assert ended.usage.completion_tokens == await num_emitted(address, engine, ended.id) < 10
    assert went_on.choices[0].finish_reason == "length"
    assert went_on.usage is not None
    assert went_on.usage.completion_tokens == 10
    assert (went_on.choices[0].message.content or "").startswith(ended.choices[0].message.content or "-")


async def test_an_answer_without_max_tokens_may_take_what_the_prompt_has_left(
    engine: str, client: AsyncOpenAI, codec: TextCodec
) -> None:
    prompt = "word" + " word" * (MAX_MODEL_LEN - 5)
    answer = await client.completions.create(
        model=engine, prompt=prompt, temperature=0, extra_body={"ignore_eos": True}
    )

    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == codec.count_tokens(prompt) == MAX_MODEL_LEN - 4
    assert answer.usage.total_tokens == MAX_MODEL_LEN


# What not every engine can do


async def test_token_ids_are_a_prompt(engine: str, client: AsyncOpenAI, codec: TextCodec) -> None:
    as_text = await complete(client, engine)
    with honours(engine, "prompt"):
        as_ids = await complete(client, engine, prompt=codec.encode(TALE))
        assert as_ids.choices[0].text == as_text.choices[0].text
        assert as_ids.usage == as_text.usage
        with pytest.raises(openai.BadRequestError, match="token id 1000000"):
            await complete(client, engine, prompt=[1_000_000])


async def test_a_stop_string_ends_the_text_before_it(engine: str, client: AsyncOpenAI) -> None:
    told = await pieces(client, engine)
    stop = told[3].strip() + told[4][:2]  # across the border of two tokens
    with honours(engine, "stop"):
        answer = await complete(client, engine, stop=stop)
        streamed = await pieces(client, engine, stop=stop)

        text = answer.choices[0].text
        assert text == "".join(streamed) == "".join(told).partition(stop)[0]
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5


async def test_a_seed_makes_the_same_text_again(engine: str, client: AsyncOpenAI) -> None:
    with honours(engine, "seed"):
        texts = [
            (await complete(client, engine, temperature=1, seed=seed)).choices[0].text for seed in (7, 7, 8)
        ]
        assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(("field", "value"), [("top_k", 1), ("top_p", 1e-6)])
async def test_only_the_most_likely_token_is_the_greedy_one(
    engine: str, client: AsyncOpenAI, field: str, value: float
) -> None:
    greedy = await complete(client, engine)
    with honours(engine, field):
        drawn = await complete(client, engine, temperature=1, extra_body={field: value})
        assert drawn.choices[0].text == greedy.choices[0].text


async def test_n_texts_share_a_prompt(engine: str, client: AsyncOpenAI, codec: TextCodec) -> None:
    with honours(engine, "n"):
        answer = await complete(client, engine, n=3, temperature=1)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert len({choice.text for choice in answer.choices}) > 1
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == codec.count_tokens(TALE)
        assert answer.usage.completion_tokens == 24


async def test_log_probabilities_come_with_every_token(engine: str, client: AsyncOpenAI) -> None:
    with honours(engine, "logprobs"):
        answer = await client.chat.completions.create(
            model=engine, messages=HELLO, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
        )
        [choice] = answer.choices
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        assert "".join(token.token for token in tokens) == choice.message.content
        assert len(tokens) == 4
        for token in tokens:
            first, second = token.top_logprobs
            assert (first.token, first.logprob) == (token.token, token.logprob)
            assert 0 >= first.logprob >= second.logprob


# Refusals


async def test_a_prompt_that_is_too_long_is_refused_with_its_length_and_the_limit(
    engine: str, client: AsyncOpenAI, codec: TextCodec
) -> None:
    prompt = "word " * 300
    with pytest.raises(openai.BadRequestError) as refused:
        await complete(client, engine, prompt=prompt)
    assert refused.value.param == "prompt"
    assert str(codec.count_tokens(prompt)) in refused.value.message
    assert str(MAX_MODEL_LEN) in refused.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"tools": [{"type": "function"}]}}, "tools"),
        ({"extra_body": {"guided_json": {}}}, "guided_json"),
    ],
    ids=lambda value: str(value),
)
async def test_what_no_engine_can_do_is_refused_by_name(
    engine: str, client: AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await complete(client, engine, **fields)
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


async def test_another_model_is_not_found(engine: str, client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=engine) as refused:
        await complete(client, f"{engine}-2")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


# Clients that go


async def test_a_client_that_leaves_a_stream_aborts_its_request(
    engine: str, client: AsyncOpenAI, address: str
) -> None:
    feed_address = f"{address.replace('http', 'ws')}/telemetry?backend={engine}"
    async with connect(feed_address, proxy=None) as feed:
        stream = await client.completions.create(
            model=engine, prompt=TALE, max_tokens=200, stream=True, extra_body={"ignore_eos": True}
        )
        first = await anext(aiter(stream))
        await stream.close()
        finished = await until_finished(feed, first.id.removeprefix("cmpl-"))

    assert finished.reason is FinishReason.ABORT
    assert finished in await trace(address, engine)
