"""The model that comes with the installation: prepared, tokenized, templated and generated from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from backends.generate.engine import GenerateEngine
from backends.models import PreparedModel, prepare_model
from backends.records import StepRecord
from backends.settings import Settings
from backends.text import TextCodec
from tests.engine_harness import Client, Watch, request, started

CHAT = [
    {"role": "system", "content": "Answer in one sentence."},
    {"role": "user", "content": "What is a batch? 배치가 뭐예요? 👋"},
]
TOKENS = 24


@pytest.fixture(scope="module")
def smollm2() -> PreparedModel:
    """In the cache of whoever runs the tests: converted once, in half a minute."""
    settings = Settings()
    return asyncio.run(prepare_model("smollm2", settings.cache_dir, lambda fraction, sentence: None))


@pytest.fixture(scope="module")
def tokenizer(smollm2: PreparedModel) -> Any:
    return AutoTokenizer.from_pretrained(smollm2.path)


def test_it_is_what_it_says(smollm2: PreparedModel) -> None:
    assert smollm2.name == "SmolLM2-135M-Instruct"
    assert smollm2.architecture == "LlamaForCausalLM"
    assert smollm2.shape.num_parameters == 134_515_008
    assert (smollm2.shape.num_layers, smollm2.shape.num_kv_heads, smollm2.shape.head_dim) == (30, 3, 64)
    assert smollm2.max_position_embeddings == 8192
    assert smollm2.has_chat_template


def test_an_answer_ends_at_the_end_of_the_assistants_turn(smollm2: PreparedModel, tokenizer: Any) -> None:
    assert smollm2.eos_token_ids == (tokenizer.convert_tokens_to_ids("<|im_end|>"),)


@pytest.mark.parametrize("messages", [CHAT, CHAT[1:]], ids=["system prompt", "none"])
def test_a_chat_becomes_the_prompt_that_transformers_makes(
    messages: list[dict[str, str]], smollm2: PreparedModel, tokenizer: Any
) -> None:
    codec = TextCodec.load(smollm2)
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert codec.render_chat(messages) == prompt
    assert codec.encode(prompt) == tokenizer(prompt)["input_ids"]


@pytest.mark.parametrize("text", ["안녕하세요, 여러분! 👋🏽", "  1234.5 + x\n\n\t— “naïve”", "👩‍👩‍👧‍👦🇰🇷"])
def test_text_streams_in_whole_characters(text: str, smollm2: PreparedModel) -> None:
    codec = TextCodec.load(smollm2)
    detokenizer = codec.detokenizer(codec.encode("Say:"))
    pieces = [detokenizer.push(token_id) for token_id in codec.encode(text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


async def test_the_generate_engine_streams_what_model_generate_gives(
    smollm2: PreparedModel, tokenizer: Any
) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(smollm2.path, dtype=torch.float32)
    async with started(GenerateEngine(Settings(max_model_len=256))) as engine:
        prompt = await engine.render_chat(CHAT)
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        expected = model.generate(ids, do_sample=False, max_new_tokens=TOKENS)[0, ids.shape[1] :].tolist()
        watch = Watch(engine)
        client = Client(engine, request("A", prompt, max_tokens=TOKENS))
        await client.task
    assert [chunk.token_id for chunk in client.tokens] == [
        i for i in expected if i not in smollm2.eos_token_ids
    ]
    assert client.text == tokenizer.decode(expected, skip_special_tokens=True)
    prefill: StepRecord = watch.steps[0]
    assert prefill.input_shape == list(ids.shape)
    assert prefill.kv is not None
    assert (prefill.kv.filled_slots, prefill.kv.reserved_slots) == ({"A": ids.shape[1]}, {"A": 256})
