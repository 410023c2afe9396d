"""A class full of clients on one real engine: each gets its own answer, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from pytest_asyncio import fixture

from backends.base import ControlAction
from backends.paged.engine import PagedEngine
from backends.records import FinishReason
from backends.settings import Settings
from tests.api.serving import Served, serving
from tests.engine_harness import Watch, started
from tests.tiny_models import make_tiny_model

NUM_BLOCKS = 64
TOKENS = 24
MAX_NUM_SEQS = 8
PROMPTS = [f" {first} {second}" for first in "abcdefghij" for second in "xyz"]
NUM_CLIENTS = len(PROMPTS)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PagedEngine]:
    """A quarter of the class fits into a step, half of it into the pool."""
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), tokenizer="words")
    limits: dict[str, Any] = {"num_blocks": NUM_BLOCKS, "block_size": 8, "max_num_seqs": MAX_NUM_SEQS}
    settings = Settings(model=str(folder), cache_dir=tmp_path_factory.mktemp("cache"), **limits)
    async with started(PagedEngine(settings)) as engine:
        yield engine


@fixture(loop_scope="module")
async def server(engine: PagedEngine) -> AsyncIterator[Served]:
    async with serving(engine, settings=engine.settings) as server:
        yield server


@fixture(loop_scope="module")
async def client(server: Served) -> AsyncIterator[AsyncOpenAI]:
    http = httpx.AsyncClient(trust_env=False, timeout=120)
    async with AsyncOpenAI(
        base_url=f"http://{server.address}/v1", api_key="none", max_retries=0, http_client=http
    ) as client:
        yield client


async def stream(client: AsyncOpenAI, prompt: str) -> tuple[str, str, str | None]:
    """Id, text and finish reason of an answer."""
    answer = await client.completions.create(
        model="paged",
        prompt=prompt,
        max_tokens=TOKENS,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in answer]
    assert len({chunk.id for chunk in chunks}) == 1
    text = "".join(chunk.choices[0].text for chunk in chunks)
    return chunks[0].id, text, chunks[-1].choices[0].finish_reason


async def test_a_class_streams_at_once_and_each_gets_the_answer_it_would_get_alone(
    engine: PagedEngine, client: AsyncOpenAI
) -> None:
    alone = [await stream(client, prompt) for prompt in PROMPTS]
    await engine.control(ControlAction.PAUSE)
    watch = Watch(engine)
    asking = [asyncio.create_task(stream(client, prompt)) for prompt in PROMPTS]
    await watch.until(lambda: len(watch.arrived()) == NUM_CLIENTS)
    await engine.control(ControlAction.RESUME)
    together = await asyncio.gather(*asking)

    assert [text for _, text, _ in together] == [text for _, text, _ in alone]
    assert len({text for _, text, _ in together}) == NUM_CLIENTS
    assert {reason for _, _, reason in together} == {"length"}
    assert watch.finished() == {name.removeprefix("cmpl-"): FinishReason.LENGTH for name, _, _ in together}
    assert max(len(step.rows) for step in watch.steps) == MAX_NUM_SEQS
    assert_nothing_is_left(engine)


async def test_when_half_of_a_class_leaves_the_others_get_their_answers(
    engine: PagedEngine, client: AsyncOpenAI
) -> None:
    alone = [await stream(client, prompt) for prompt in PROMPTS[::2]]
    await engine.control(ControlAction.PAUSE)
    watch = Watch(engine)
    asking = [asyncio.create_task(stream(client, prompt)) for prompt in PROMPTS]
    await watch.until(lambda: len(watch.arrived()) == NUM_CLIENTS)
    for leaving in asking[1::2]:
        leaving.cancel()
    await watch.until(lambda: len(watch.finished()) == NUM_CLIENTS // 2)
    assert set(watch.finished().values()) == {FinishReason.ABORT}
    await engine.control(ControlAction.RESUME)
    stayed = await asyncio.gather(*asking[::2])

    assert [text for _, text, _ in stayed] == [text for _, text, _ in alone]
    assert_nothing_is_left(engine)


def assert_nothing_is_left(engine: PagedEngine) -> None:
    snapshot = engine.recorder.head().snapshot
    assert not engine.has_work()
    assert snapshot.requests == []
    assert snapshot.num_free_blocks == NUM_BLOCKS
