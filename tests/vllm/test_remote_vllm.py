"""The engine ``remote`` in front of real ``vllm serve``: one, and two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.errors import InvalidRequest, UpstreamError
from backends.records import EngineGauges, FinishReason, RequestFinished, State, TokenEmitted
from backends.remote import fleet
from tests.engine_harness import Client, Watch, request
from tests.remote_servers.proxy import wire
from tests.unit.remote.harness import HELLO, all_up, answer, chat, records_of, remote, text_of
from tests.vllm.vllm_serve import MAX_MODEL_LEN, MODEL, vllm_servers

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    with vllm_servers(2) as addresses:
        yield addresses


async def asked_directly(address: str, path: str, **body: Any) -> dict[str, Any]:
    """What the server itself answers, whole."""
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:
        response = await client.post(path, json={"model": MODEL, "temperature": 0, **body})
        response.raise_for_status()
        return response.json()


async def num_answered(address: str) -> float:
    """Requests that the server has brought to an end of their own."""
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:request_success_total"))


@pytest.mark.parametrize("is_chat", [True, False], ids=["chat", "completion"])
async def test_text_and_counts_are_what_the_server_itself_says(servers: list[str], is_chat: bool) -> None:
    if is_chat:
        asked = chat(max_tokens=12)
        whole = await asked_directly(servers[0], "/v1/chat/completions", messages=list(HELLO), max_tokens=12)
        text = whole["choices"][0]["message"]["content"]
    else:
        asked = request("r0", "Once upon a time", max_tokens=12)
        whole = await asked_directly(servers[0], "/v1/completions", prompt=asked.prompt, max_tokens=12)
        text = whole["choices"][0]["text"]
    async with remote(servers[0]) as engine:
        chunks = await answer(engine, asked)
        [finished] = records_of(engine.recorder, RequestFinished)
        tokens = records_of(engine.recorder, TokenEmitted)
        header = engine.recorder.header
    assert text_of(chunks) == text
    assert len(tokens) == finished.num_output_tokens == whole["usage"]["completion_tokens"]
    assert finished.num_prompt_tokens == whole["usage"]["prompt_tokens"]
    assert finished.reason == whole["choices"][0]["finish_reason"]
    assert header is not None
    assert (header.model, header.engine.max_model_len) == (MODEL, MAX_MODEL_LEN)
    assert header.versions["vllm"].startswith("0.")


async def test_figures_tell_of_the_request_that_runs_and_of_the_prefix_it_shares(servers: list[str]) -> None:
    async with remote(servers[0]) as engine:
        await engine.start()
        watch = Watch(engine)

        def told() -> list[EngineGauges]:
            return [record for record in watch.records if isinstance(record, EngineGauges)]

        prompt = "Serving systems batch requests because reading the weights is what costs. " * 6
        await answer(engine, request("first", prompt, max_tokens=1))
        client = Client(engine, request("second", prompt, max_tokens=120, ignore_eos=True))
        await watch.until(lambda: any(gauges.num_running == 1 for gauges in told()))
        await client.leave()
        await watch.until(lambda: told()[-1].num_running == 0)  # closing the connection has aborted it
    busy = next(gauges for gauges in told() if gauges.num_running == 1)
    assert busy.kv_cache_usage is not None
    assert busy.kv_cache_usage > 0
    assert busy.prefix_cache_hits is not None
    assert busy.prefix_cache_hits >= 64  # two blocks of 32 at least
    assert {gauges.source for gauges in told()} == {"/metrics"}


async def test_log_probabilities_and_several_texts(servers: list[str]) -> None:
    async with remote(servers[0]) as engine:
        greedy = await answer(engine, chat("greedy", max_tokens=4, logprobs=2))
        several = await answer(engine, chat("several", max_tokens=4, n=2, temperature=1.0, seed=1))
        finished = records_of(engine.recorder, RequestFinished)
    for chunk in greedy[:-1]:
        (best, logprob), (_, second) = chunk.top_logprobs
        assert (best, logprob) == (chunk.text, chunk.logprob)
        assert 0 >= logprob >= second
    assert {chunk.sample for chunk in several} == {0, 1}
    assert [record.num_output_tokens for record in finished] == [4, 4, 4]


async def test_a_refusal_comes_in_vllms_words_with_the_field(servers: list[str]) -> None:
    async with remote(servers[0]) as engine:
        with pytest.raises(InvalidRequest, match=str(MAX_MODEL_LEN)) as refused:
            await answer(engine, chat(max_tokens=MAX_MODEL_LEN + 1))
    assert refused.value.field == "max_tokens"


async def test_two_servers_share_the_requests_evenly(servers: list[str]) -> None:
    before = [await num_answered(address) for address in servers]
    async with remote(*servers) as engine:
        await engine.start()
        await all_up(engine)
        await asyncio.gather(
            *(answer(engine, chat(f"r{index}", max_tokens=16, ignore_eos=True)) for index in range(4))
        )
        counts = [record.num_output_tokens for record in records_of(engine.recorder, RequestFinished)]
    after = [await num_answered(address) for address in servers]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 2]
    assert counts == [16] * 4


async def test_a_server_that_dies_midway_is_an_error_and_the_other_goes_on(
    servers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FIRST_BACK_OFF", 0.05)
    async with wire(servers[0]) as first, remote(first.address, servers[1]) as engine:
        await engine.start()
        await all_up(engine)
        long = {"max_tokens": 150, "ignore_eos": True}
        clients = [Client(engine, chat(f"r{index}", **long)) for index in range(2)]
        for client in clients:
            await client.receives(2)
        first.cut()
        await asyncio.gather(*(client.task for client in clients))
        [error] = [client.error for client in clients if client.error is not None]
        assert isinstance(error, UpstreamError)
        assert "Server 1 broke off the answer after" in error.message
        await Watch(engine).until(lambda: engine.state.reason)
        assert engine.state.state is State.READY
        assert engine.state.reason.startswith("Server 1 cannot be reached")
        assert text_of(await answer(engine, chat("after", max_tokens=4)))
        reasons = {
            record.request_id: record.reason for record in records_of(engine.recorder, RequestFinished)
        }
    assert sorted(reasons.values()) == [FinishReason.ERROR, FinishReason.LENGTH, FinishReason.LENGTH]
