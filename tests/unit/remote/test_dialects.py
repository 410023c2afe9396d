"""One chat with a server of each dialect, and what is made of it."""

from __future__ import annotations

import msgspec
import pytest

from backends.errors import InvalidRequest, Overloaded, ServescopeError, UpstreamError
from backends.records import (
    EngineGauges,
    Exposure,
    FinishReason,
    QueueSample,
    RequestArrived,
    RequestFinished,
    State,
    StepRecord,
    TokenEmitted,
)
from tests.engine_harness import request
from tests.remote_servers import dialects
from tests.remote_servers.base import WORDS, RemoteServer, running
from tests.unit.remote.harness import answer, chat, records_of, remote, text_of

ALL = [
    dialects.Vllm,
    dialects.SGLang,
    dialects.TensorRtLlm,
    dialects.Ollama,
    dialects.LlamaCpp,
    dialects.LlmdGateway,
]
COUNT_LIVE = {dialects.Vllm, dialects.SGLang, dialects.TensorRtLlm, dialects.LlmdGateway}

each_dialect = pytest.mark.parametrize("dialect", ALL)


@each_dialect
@pytest.mark.parametrize("is_chat", [True, False], ids=["chat", "completion"])
async def test_an_answer_is_read_to_its_end_with_the_servers_count(
    dialect: type[RemoteServer], is_chat: bool
) -> None:
    server = dialect()
    async with running(server) as address, remote(address) as engine:
        chunks = await answer(engine, chat(max_tokens=20) if is_chat else request("r0", max_tokens=20))

        assert text_of(chunks) == "".join(WORDS)
        assert [chunk.index for chunk in chunks[:-1]] == list(range(len(WORDS)))
        assert chunks[-1].finish_reason is FinishReason.STOP
        assert (chunks[-1].num_prompt_tokens, chunks[-1].num_output_tokens) == (7, len(WORDS))
        [arrived] = records_of(engine.recorder, RequestArrived)
        assert arrived.num_prompt_tokens is None
        [finished] = records_of(engine.recorder, RequestFinished)
        assert (finished.num_prompt_tokens, finished.num_output_tokens) == (7, len(WORDS))
        [body] = server.asked
        assert ("messages" in body, "prompt" in body) == (is_chat, not is_chat)
        assert body["stream"] is True
        assert body["model"] == server.model


@each_dialect
async def test_what_is_cut_short_says_so(dialect: type[RemoteServer]) -> None:
    async with running(dialect()) as address, remote(address) as engine:
        chunks = await answer(engine, chat(max_tokens=2))
    assert text_of(chunks) == "Once upon"
    assert chunks[-1].finish_reason is FinishReason.LENGTH


@each_dialect
async def test_a_chunk_of_several_tokens_is_counted_as_the_server_counts(dialect: type[RemoteServer]) -> None:
    """Each token where the chunk tells, else the chunks, put right by the sum at the end."""
    async with running(dialect(tokens_per_chunk=2)) as address, remote(address) as engine:
        await answer(engine, chat(max_tokens=4))

        tokens = records_of(engine.recorder, TokenEmitted)
        times = [token.time for token in tokens]
        if dialect in COUNT_LIVE:
            assert len(tokens) == 4
            assert times[0] == times[1] < times[2] == times[3]
        else:
            assert len(tokens) == 2
        assert all(token.step_id is None for token in tokens)
        [finished] = records_of(engine.recorder, RequestFinished)
        assert finished.num_output_tokens == 4


@each_dialect
async def test_the_header_says_what_is_not_exposed(dialect: type[RemoteServer]) -> None:
    async with running(dialect()) as address, remote(address) as engine:
        await engine.start()
        header = engine.recorder.header
        assert header is not None
        assert header.model == dialect.model == engine.info.model
        assert header.measured["batch"] is header.measured["kv"] is Exposure.NOT_EXPOSED
        assert header.measured["queues"] is header.measured["latency"] is Exposure.DERIVED
        assert "socket" in header.notes["latency"]
        assert ("counts as one" in header.notes["latency"]) == (dialect not in COUNT_LIVE)
        assert "not exposed" in header.device
        assert records_of(engine.recorder, StepRecord) == []


VERSIONS = {
    dialects.Vllm: {"vllm": "0.32.0"},
    dialects.SGLang: {"sglang": "0.5.4"},
    dialects.TensorRtLlm: {"tensorrt_llm": "1.2.0"},
    dialects.Ollama: {"ollama": "0.12.6"},
    dialects.LlamaCpp: {"llama.cpp": "b7187-7fb18910"},
    dialects.LlmdGateway: {"vllm": "not exposed"},
}
LIMITS = {dialects.Vllm: 256, dialects.LlmdGateway: 256, dialects.SGLang: 512}


@each_dialect
async def test_the_header_says_what_the_server_says_of_itself(dialect: type[RemoteServer]) -> None:
    async with running(dialect()) as address, remote(address) as engine:
        await engine.start()
        assert engine.recorder.header is not None
        assert engine.recorder.header.versions == VERSIONS[dialect]
        assert engine.recorder.header.engine.max_model_len == LIMITS.get(dialect)


GAUGES = {
    dialects.Vllm: (0, 2, 0.25, 640, 96, 3),
    dialects.SGLang: (8, 4, 0.52, 1000, 280, None),
    dialects.LlamaCpp: (4, 46, None, None, None, None),
}


@pytest.mark.parametrize("dialect", GAUGES)
async def test_figures_come_from_its_metrics(dialect: type[RemoteServer]) -> None:
    async with running(dialect()) as address, remote(address) as engine:
        await engine.start()
        while not (gauges := records_of(engine.recorder, EngineGauges)):
            await engine.recorder.wait_for(engine.recorder.version + 1)
    told = gauges[0]
    assert (told.source, told.server) == ("/metrics", None)
    assert GAUGES[dialect] == (
        told.num_running,
        told.num_waiting,
        told.kv_cache_usage,
        told.prefix_cache_queries,
        told.prefix_cache_hits,
        told.num_preemptions,
    )


@pytest.mark.parametrize("dialect", [dialect for dialect in ALL if dialect not in GAUGES])
async def test_a_server_without_metrics_has_no_figures_and_is_as_good(dialect: type[RemoteServer]) -> None:
    async with running(dialect()) as address, remote(address) as engine:
        await answer(engine, chat())
        assert engine.state.state is State.READY
        assert records_of(engine.recorder, EngineGauges) == []


TOO_LONG = {
    dialects.Vllm: ("cannot be greater than max_model_len=256", "max_tokens"),
    dialects.SGLang: ("maximum context length", None),
    dialects.TensorRtLlm: ("max_tokens is too large", None),
    dialects.LlamaCpp: ("exceeds the available context size", None),
}


@pytest.mark.parametrize("dialect", TOO_LONG)
async def test_a_refusal_comes_in_the_servers_words(dialect: type[RemoteServer]) -> None:
    words, field = TOO_LONG[dialect]
    async with running(dialect()) as address, remote(address) as engine:
        with pytest.raises(InvalidRequest, match=words) as refused:
            await answer(engine, chat(max_tokens=500))
        [finished] = records_of(engine.recorder, RequestFinished)
    assert refused.value.field == field
    assert finished.reason is FinishReason.ERROR
    assert words in finished.message


@pytest.mark.parametrize(
    ("dialect", "sampling", "field"),
    [
        (dialects.Ollama, {"top_k": 5}, "top_k"),
        (dialects.Ollama, {"n": 2}, "n"),
        (dialects.Ollama, {"logprobs": 1}, "logprobs"),
        (dialects.Ollama, {"ignore_eos": True}, "ignore_eos"),
        (dialects.LlamaCpp, {"n": 2}, "n"),
    ],
)
async def test_what_a_server_would_drop_without_a_word_is_refused_by_name(
    dialect: type[RemoteServer], sampling: dict[str, object], field: str
) -> None:
    server = dialect()
    async with running(server) as address, remote(address) as engine:
        with pytest.raises(InvalidRequest, match=field) as refused:
            await answer(engine, chat(**sampling))
    assert refused.value.field == field
    assert server.asked == []


async def test_every_field_reaches_a_server_that_honours_it() -> None:
    server = dialects.Vllm()
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 7, "stop": ("x",), "ignore_eos": True}
    async with running(server) as address, remote(address) as engine:
        await answer(engine, chat(**sampling))
        await answer(engine, chat("r1"))
    [full, plain] = server.asked
    assert full.items() >= (sampling | {"stop": ["x"], "max_tokens": 5}).items()
    assert not plain.keys() & {"top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs"}


@pytest.mark.parametrize("is_chat", [True, False])
async def test_log_probabilities_come_with_the_tokens_they_are_of(is_chat: bool) -> None:
    server = dialects.Vllm()
    asked = chat(logprobs=2) if is_chat else request("r0", logprobs=2)
    async with running(server) as address, remote(address) as engine:
        chunks = await answer(engine, asked)
    assert [chunk.text for chunk in chunks[:-1]] == list(WORDS)
    assert {chunk.logprob for chunk in chunks[:-1]} == {-0.5}
    assert chunks[1].top_logprobs == ((" upon", -0.5), (" x", -1.5))
    assert server.asked[0]["logprobs"] == (True if is_chat else 2)
    assert server.asked[0].get("top_logprobs") == (2 if is_chat else None)


async def test_n_texts_end_each_with_a_count_of_its_own() -> None:
    async with running(dialects.Vllm()) as address, remote(address) as engine:
        chunks = await answer(engine, chat(n=2, max_tokens=3))
        finished = records_of(engine.recorder, RequestFinished)
    for sample in (0, 1):
        assert text_of([chunk for chunk in chunks if chunk.sample == sample]) == "Once upon a"
    assert [(record.request_id, record.num_output_tokens) for record in finished] == [("r0", 3), ("r0/1", 3)]
    assert {record.num_prompt_tokens for record in finished} == {7}


async def test_a_prompt_of_token_ids_goes_as_it_is_and_is_counted() -> None:
    server = dialects.Vllm()
    ids = msgspec.structs.replace(request("r0"), prompt="", prompt_ids=(1, 2, 3))
    async with running(server) as address, remote(address) as engine:
        await answer(engine, ids)
        [arrived] = records_of(engine.recorder, RequestArrived)
    assert server.asked[0]["prompt"] == [1, 2, 3]
    assert arrived.num_prompt_tokens == 3


async def test_an_error_in_a_stream_of_sglang_is_an_error_midway() -> None:
    server = dialects.SGLang()
    server.error_after = 2
    async with running(server) as address, remote(address) as engine:
        with pytest.raises(UpstreamError, match=r"after 2 tokens.*ran out of memory"):
            await answer(engine, chat())
        [finished] = records_of(engine.recorder, RequestFinished)
        assert finished.reason is FinishReason.ERROR
    assert len(server.asked) == 1  # never again after the first token


async def test_an_error_before_the_first_token_is_a_refusal() -> None:
    server = dialects.SGLang()
    server.error_after = 0
    async with running(server) as address, remote(address) as engine:
        with pytest.raises(ServescopeError, match="ran out of memory"):
            await answer(engine, chat())


async def test_ollamas_unknown_model_is_told_in_its_words() -> None:
    async with running(dialects.Ollama()) as address, remote(address, remote_model="llama9") as engine:
        with pytest.raises(UpstreamError, match="model 'llama9' not found"):
            await answer(engine, chat())


async def test_a_full_gateway_without_a_word_is_overload() -> None:
    server = dialects.LlmdGateway()
    server.refusals = [server.no_capacity() for _ in range(3)]
    async with running(server) as address, remote(address) as engine:
        with pytest.raises(Overloaded, match="429"):
            await answer(engine, chat())
    assert len(server.asked) == 3


async def test_a_gateway_that_finds_a_pod_at_the_second_try_answers() -> None:
    server = dialects.LlmdGateway()
    server.refusals = [server.no_pod()]
    async with running(server) as address, remote(address) as engine:
        assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


async def test_a_llama_server_that_still_loads_says_so() -> None:
    server = dialects.LlamaCpp()
    server.is_loading = True
    async with running(server) as address, remote(address) as engine:
        with pytest.raises(UpstreamError, match="Loading model"):
            await answer(engine, chat())


async def test_a_llama_server_without_metrics_has_no_figures() -> None:
    server = dialects.LlamaCpp()
    server.has_metrics = False
    async with running(server) as address, remote(address) as engine:
        await answer(engine, chat())
        assert records_of(engine.recorder, EngineGauges) == []


async def test_llama_cpp_python_never_counts_and_nothing_is_guessed() -> None:
    async with running(dialects.LlamaCppPython()) as address, remote(address) as engine:
        chunks = await answer(engine, chat(max_tokens=9, top_k=5))
        [finished] = records_of(engine.recorder, RequestFinished)
    assert text_of(chunks) == "".join(WORDS)
    assert (finished.num_prompt_tokens, finished.num_output_tokens) == (None, None)


async def test_a_stream_that_ends_without_done_is_whole() -> None:
    server = dialects.Vllm()
    server.done = ""  # type: ignore[misc]
    async with running(server) as address, remote(address) as engine:
        chunks = await answer(engine, chat())
    assert text_of(chunks) == "".join(WORDS)
    assert chunks[-1].num_output_tokens == len(WORDS)


async def test_the_stream_of_a_request_is_sampled() -> None:
    async with running(dialects.Vllm()) as address, remote(address) as engine:
        await answer(engine, chat())
        first, *_ = records_of(engine.recorder, QueueSample)
    assert set(first.streams) == {"r0"}
