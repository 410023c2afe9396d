"""What ``/v1`` asks of an engine that samples, and how it tells what came of it."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from backends.base import SamplingParams, TokenChunk
from backends.records import FinishReason
from tests.api.openai_client import HELLO, Naming, Scripted, asking, end


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
