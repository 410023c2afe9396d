"""What vLLM is asked for beyond a prompt, and what it refuses."""

from __future__ import annotations

import pytest

from backends.errors import InvalidRequest
from backends.records import FinishReason
from backends.vllm_async.engine import VllmEngine
from tests.engine_harness import Client, Watch, request

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_stop_string_ends_the_text_before_it(engine: VllmEngine) -> None:
    watch = Watch(engine)
    client = Client(engine, request("stops", "The capital of France is", max_tokens=20, stop=("\n",)))
    await client.task

    assert client.text == " Paris."
    assert watch.finished() == {"stops": FinishReason.STOP}


async def test_an_end_of_sequence_token_is_no_token_of_the_answer(engine: VllmEngine) -> None:
    chat = await engine.render_chat([{"role": "user", "content": "Say hi."}])
    client = Client(engine, request("ends", chat, max_tokens=100))
    await client.task

    assert client.chunks[-1].finish_reason is FinishReason.STOP
    assert "<|im_end|>" not in client.text
    assert all(chunk.token_id not in engine.model.eos_token_ids for chunk in client.tokens)


async def test_a_seed_gives_the_same_texts_again_and_each_sample_its_own(engine: VllmEngine) -> None:
    texts = []
    for name in ("once", "twice"):
        client = Client(
            engine, request(name, "Once upon a", max_tokens=8, temperature=1.0, seed=7, n=2, ignore_eos=True)
        )
        await client.task
        texts.append([[c.token_id for c in client.tokens if c.sample == sample] for sample in (0, 1)])

    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]


async def test_log_probabilities_are_of_the_chosen_token_and_of_the_most_likely(engine: VllmEngine) -> None:
    client = Client(engine, request("likely", "The capital of France is", max_tokens=3, logprobs=2))
    await client.task

    for chunk in client.tokens:
        assert chunk.logprob is not None
        assert chunk.logprob <= 0
        assert len(chunk.top_logprobs) == 2
        assert chunk.top_logprobs[0] == (chunk.token_id, chunk.logprob), "greedy takes the most likely"


async def test_a_prompt_longer_than_the_pool_is_refused_with_the_limit(engine: VllmEngine) -> None:
    client = Client(engine, request("long", "word " * 400))
    await client.task

    assert isinstance(client.error, InvalidRequest)
    assert "352" in client.error.message


async def test_more_tokens_than_the_model_can_hold_end_at_its_limit(engine: VllmEngine) -> None:
    client = Client(engine, request("full", "word " * 340, max_tokens=50, ignore_eos=True))
    await client.task

    assert client.chunks[-1].finish_reason is FinishReason.LENGTH
    assert len(client.tokens) < 50
