"""Servers that lie, babble, stall or break off: a clear error, never a hang, never memory without end."""

from __future__ import annotations

import asyncio
import gzip
import itertools

import pytest

from backends.errors import EngineUnavailable, UpstreamError
from backends.records import FinishReason, RequestFinished, State
from backends.remote import client, conversation
from tests.engine_harness import request
from tests.remote_servers.base import running
from tests.remote_servers.dialects import Vllm
from tests.remote_servers.raw import STREAM_HEAD, Script, page, raw_server, sending, silent
from tests.unit.remote.harness import answer, records_of, remote

TOKEN = b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def for_ever(part: bytes, head: bytes = STREAM_HEAD) -> Script:
    """Until the client closes the connection, which is what ends the test."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return script


def event(data: bytes) -> Script:
    return sending(STREAM_HEAD, b"data: " + data + b"\n\n")


HOSTILE: dict[str, tuple[Script, str]] = {
    "a line without end": (for_ever(b"data: " + b"x" * 4096), "event without end"),
    "an event without end": (for_ever(b"data: " + b"x" * 4096 + b"\n"), "event without end"),
    "comments without end": (for_ever(b": " + b"x" * 65536 + b"\n\n"), "no answer is that long"),
    "empty chunks without end": (for_ever(b'data: {"choices": []}\n\n' * 999), "no answer is that long"),
    "a header without end": (for_ever(b"X: y\r\n" * 999, b"HTTP/1.1 200 OK\r\n"), "closed the connection"),
    "no HTTP": (sending(b"220 mail.example ESMTP\r\n"), "closed the connection"),
    "another type of content": (sending(page(b"<html>")), "no stream of events"),
    "a whole answer": (sending(page(b'{"choices": [{"text": "a"}]}')), "no stream of events"),
    "a redirect": (
        sending(page(b"", b"302 Found", more=b"Location: http://elsewhere.example/\r\n")),
        "redirects (302)",
    ),
    "compressed": (
        sending(
            page(gzip.compress(END), kind=b"text/event-stream", more=b"Content-Encoding: gzip\r\n"),
        ),
        "compresses its answer",
    ),
    "no JSON": (event(b"{"), "it is no JSON"),
    "no UTF-8": (event(b'{"choices": [{"text": "\xff"}]}'), "it is no JSON"),
    "nested too deep": (event(b"[" * 200_000), "no chunk of an answer"),
    "a negative count": (event(b'{"usage": {"completion_tokens": -1}}'), ">= 0"),
    "an absurd count": (event(b'{"usage": {"completion_tokens": 1000000000}}'), "<= 100000000"),
    "more than was asked for": (event(b'{"usage": {"completion_tokens": 6}}'), "5 were asked for"),
    "a text too many": (event(b'{"choices": [{"index": 7, "text": "a"}]}'), "text 8"),
    "an error of its own shape": (event(b'{"error": {"x": 1}}'), "without a reason"),
    "an error event": (
        sending(STREAM_HEAD, b'event: error\ndata: {"message": "out of luck"}\n\n'),
        "out of luck",
    ),
    "an error event in words": (sending(STREAM_HEAD, b"event: error\ndata: oh\n\n"), "without a reason"),
    "nothing": (sending(), "closed the connection"),
    "a head and nothing": (sending(STREAM_HEAD), "broke off the answer before its first token"),
    "an end without reason": (
        sending(STREAM_HEAD, TOKEN, b"data: [DONE]\n\n"),
        "broke off the answer after 1",
    ),
    "half an answer": (sending(STREAM_HEAD, TOKEN * 2, b"data: {"), "broke off the answer after 2 tokens"),
    "garbage after tokens": (sending(STREAM_HEAD, TOKEN, b"data: ?\n\n"), "it is no JSON"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_is_an_error_in_plain_words(name: str) -> None:
    script, words = HOSTILE[name]
    async with raw_server(script) as address, remote(address) as engine:
        with pytest.raises(UpstreamError) as failed:
            await answer(engine, request("r0"))
        [finished] = records_of(engine.recorder, RequestFinished)
    assert words in failed.value.message
    assert failed.value.message.startswith("The server")
    assert (finished.reason, finished.message) == (FinishReason.ERROR, failed.value.message)


async def test_after_the_first_token_nothing_is_tried_again() -> None:
    calls = itertools.count()

    async def script(writer: asyncio.StreamWriter) -> None:
        next(calls)
        writer.write(STREAM_HEAD + TOKEN)

    async with raw_server(script) as address, remote(address) as engine:
        with pytest.raises(UpstreamError, match="after 1 tokens"):
            await answer(engine, request("r0"))
    assert next(calls) == 1


async def test_a_connection_lost_before_the_first_token_is_tried_again() -> None:
    calls = itertools.count()

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + (TOKEN + END if next(calls) else b""))

    async with raw_server(script) as address, remote(address) as engine:
        chunks = await answer(engine, request("r0"))
    assert [chunk.text for chunk in chunks] == ["a", ""]


@pytest.mark.parametrize(
    "script",
    [
        silent,
        for_ever(b": still there\n\n"),
        for_ever(b'data: {"choices": [{"index": 0, "text": ""}]}\n\n'),
    ],
    ids=["silent", "comments", "chunks without a token"],
)
async def test_what_is_no_token_does_not_extend_the_patience(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "FIRST_TOKEN_TIMEOUT", 0.05)
    monkeypatch.setattr(conversation, "LEAST_BYTES", 10**12)
    async with raw_server(script) as address, remote(address) as engine:
        with pytest.raises(UpstreamError, match="no token within"):
            await answer(engine, request("r0"))


async def test_a_server_that_does_not_hang_up_is_left() -> None:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + TOKEN + END)
        await writer.drain()
        await asyncio.Event().wait()

    async with raw_server(script) as address, remote(address) as engine:
        chunks = await answer(engine, request("r0"))
    assert chunks[-1].finish_reason is FinishReason.STOP


async def test_usage_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "END_TIMEOUT", 0.05)

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + TOKEN + END.removesuffix(b"data: [DONE]\n\n"))
        await writer.drain()
        await asyncio.Event().wait()

    async with raw_server(script) as address, remote(address) as engine:
        chunks = await answer(engine, request("r0"))
    assert (chunks[-1].finish_reason, chunks[-1].num_output_tokens) == (FinishReason.STOP, None)


MODELS: dict[str, tuple[bytes, str]] = {
    "no JSON": (page(b"hello"), "does not list its models as OpenAI's API does"),
    "another shape": (page(b'{"models": []}'), "offers no model"),
    "no models": (page(b'{"data": []}'), "offers no model"),
    "a model without a name": (page(b'{"data": [{"id": ""}]}'), "cannot be shown"),
    "a name of many lines": (page(b'{"data": [{"id": "a\\nb"}]}'), "cannot be shown"),
    "a name without end": (page(b'{"data": [{"id": "%b"}]}' % (b"x" * 9999)), "cannot be shown"),
    "nested too deep": (page(b"[" * 200_000), "as OpenAI's API does"),
    "too long": (page(b" " * (client.LARGEST_PAGE + 1)), "as OpenAI's API does"),
    "an error": (page(b'{"error": "broken"}', b"500 Oops"), "(500: broken)"),
    "a redirect": (page(b"", b"301 Moved", more=b"Location: /login\r\n"), "redirects (301)"),
    "no HTTP": (b"hello\r\n\r\n", "closed the connection"),
}


@pytest.mark.parametrize("name", MODELS)
async def test_a_server_that_does_not_say_what_it_serves_is_not_used(name: str) -> None:
    models, words = MODELS[name]
    async with raw_server(silent, listing=sending(models)) as address, remote(address) as engine:
        with pytest.raises(EngineUnavailable) as refused:
            await engine.start()
        assert words in refused.value.message
        assert engine.state.state in (State.STARTING, State.RESTARTING)


async def test_a_server_that_does_not_say_anything_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PROBE_TIMEOUT", 0.05)
    async with raw_server(silent, listing=silent) as address, remote(address) as engine:
        with pytest.raises(EngineUnavailable, match=r"does not answer within 0\.05 s"):
            await engine.start()


async def test_a_server_without_tls_is_told_so() -> None:
    async with running(Vllm()) as address, remote(address.replace("http:", "https:")) as engine:
        with pytest.raises(EngineUnavailable, match="does not speak TLS"):
            await engine.start()
