"""The feed over a real WebSocket, and the trace over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import socket
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from backends.api.presence import GOING_AWAY, Presence
from backends.base import GenerationRequest, SamplingParams
from backends.recorder import Recorder
from backends.records import FinishReason, RequestArrived, RequestFinished, Source, StepRecord
from backends.registry import Registry
from backends.trace import read_trace
from tests import factories as make
from tests.api.serving import (
    Counter,
    Served,
    as_records,
    recorded,
    records_until,
    serving,
    text_until,
)
from tests.fakes import FakeBackend


def asked_by(visitor: str, request_id: str = "r1") -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt="one two three",
        sampling=SamplingParams(max_tokens=50),
        source=Source.CHAT,
        visitor=visitor,
    )


async def drain(backend: FakeBackend, request: GenerationRequest) -> list[str]:
    return [chunk.text async for chunk in backend.generate(request)]


async def close_code(server: Served, query: str) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        async with server.feed(query) as feed:
            await feed.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


async def test_a_request_is_followed_from_arrival_to_finish() -> None:
    async with serving() as server, server.client() as client:
        await server.naive.start()
        async with server.feed("?backend=naive&visitor=v1") as feed:
            opening = await records_until(feed, "snapshot")
            await client.post("/generate", json={"prompt": "one two three", "max_tokens": 3})
            live = await records_until(feed, "finished")

    assert opening[0]["type"] == "header"
    kinds = [record["type"] for record in live if record["type"] not in ("state", "header")]
    assert kinds[:8] == ["arrived", "step", "token", "queues", "step", "token", "queues", "step"]
    assert [r["input_shape"] for r in live if r["type"] == "step"] == [[1, 3], [1, 4], [1, 5]]


async def test_the_default_backend_is_followed_when_none_is_named() -> None:
    async with serving(FakeBackend("generate"), FakeBackend("naive")) as server:
        await server.backends["generate"].start()
        async with server.feed() as feed:
            opening = await records_until(feed, "header")

    assert {record["backend"] for record in opening if record["type"] == "header"} == {"generate"}


async def test_no_word_of_a_prompt_or_an_answer_is_in_any_byte_of_a_feed_a_trace_or_the_metrics() -> None:
    secret = FakeBackend(script=lambda _: " swordfish")
    async with serving(secret, FakeBackend("generate")) as server, server.client() as client:
        async with server.feed("?backend=naive") as naive, server.feed("?backend=generate") as generate:
            body = {"prompt": "open sesame", "max_tokens": 5}
            answers = [
                (await client.post(path, json=body)).text for path in ("/generate", "/generate_stream")
            ]
            everything = await text_until(naive, '"finished"', times=2)
            everything += await text_until(generate, '"ready"')
        everything += (await client.get("/telemetry/naive/trace")).text
        everything += (await client.get("/metrics")).text
        everything += (await client.get("/health")).text

    assert all("swordfish" in answer for answer in answers)
    assert not any(word in everything for word in ("swordfish", "open", "sesame"))


@pytest.mark.parametrize(
    ("query", "code", "word"),
    [
        ("?backend=nope", 4404, "'nope'"),
        ("?backend=", 4404, "naive"),
        ("?since=minus", 4400, "'minus'"),
        ("?since=-1", 4400, "'-1'"),
        ("?since=1.5", 4400, "'1.5'"),
        ("?since=" + "9" * 40, 4400, "version"),
        ("?since=", 4400, "version"),
        ("?visitor=", 4400, "visitor"),
        ("?visitor=" + "a" * 65, 4400, "visitor"),
        ("?visitor=a%20b", 4400, "visitor"),
        ("?backend=" + "%EA%B0%80" * 200, 4404, "No backend"),
    ],
)
async def test_a_bad_query_closes_with_a_code_and_a_reason(query: str, code: int, word: str) -> None:
    async with serving() as server:
        got, reason = await close_code(server, query)

    assert got == code
    assert word in reason


async def test_what_a_client_says_is_ignored_unless_it_is_big() -> None:
    async with serving() as server:
        await server.naive.start()
        async with server.feed() as feed:
            await feed.send("hello")
            await feed.send(b"\x00\xff")
            await records_until(feed, "snapshot")
            await feed.send("x" * 5000)
            with pytest.raises(ConnectionClosed) as closed:
                await text_until(feed, "words that never come")

        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_a_client_that_does_not_read_slows_nobody_and_is_skipped_forward() -> None:
    crowded = FakeBackend(capacity=200)
    batch = [make.token("x" * 20_000)] * 50
    async with serving(crowded) as server:
        await crowded.start()
        async with (
            server.feed(sock=_with_a_small_buffer(server), max_queue=1, compression=None) as deaf,
            server.feed() as quick,
        ):
            for number in range(20):
                crowded.recorder.extend([*batch, make.finished(f"batch {number}")])
                await text_until(quick, f"batch {number}")
            frames = await text_until(deaf, '"snapshot"', times=2)
            crowded.recorder.append(make.finished("the end"))
            received = as_records(frames + await text_until(deaf, "the end"))

        assert [r["type"] for r in received].count("token") < 20 * len(batch)
        counter = Counter("naive")
        for record in received:
            counter.see(record)
        assert counter.version == _version_of(crowded.recorder, "the end")


def _with_a_small_buffer(server: Served) -> socket.socket:
    host, _, port = server.address.partition(":")
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    small.connect((host, int(port)))
    return small


def _version_of(recorder: Recorder, request_id: str) -> int:
    """Records up to and with the one that finishes this request."""
    entries = recorder.since(recorder.oldest_version)
    ids = [getattr(entry.record, "request_id", None) for entry in entries]
    return recorder.oldest_version + ids.index(request_id) + 1


# Presence


async def test_a_visitor_who_leaves_is_aborted_and_another_is_not() -> None:
    async with serving() as server:
        await server.naive.start()
        server.naive.gate.pause()
        async with server.feed("?visitor=stays"):
            async with server.feed("?visitor=leaves"):
                leaves = asyncio.create_task(drain(server.naive, asked_by("leaves", "r1")))
                stays = asyncio.create_task(drain(server.naive, asked_by("stays", "r2")))
                await recorded(server.naive.recorder, RequestArrived, 2)
            [finished] = await recorded(server.naive.recorder, RequestFinished)
            assert (finished.request_id, finished.reason) == ("r1", FinishReason.ABORT)
            assert await leaves == [""]
            server.naive.gate.resume()
            assert len(await stays) == 51


async def test_a_visitor_who_comes_back_within_the_grace_keeps_the_request() -> None:
    async with serving(visitor_grace=30.0) as server:
        await server.naive.start()
        server.naive.gate.pause()
        async with server.feed("?visitor=v"):
            asking = asyncio.create_task(drain(server.naive, asked_by("v")))
            await recorded(server.naive.recorder, RequestArrived)
        async with server.feed("?visitor=v") as feed:
            await records_until(feed, "snapshot")
            server.naive.gate.resume()
            assert len(await asking) == 51


class _Engines(Registry):
    """Notes whose requests were aborted."""

    def __init__(self) -> None:
        super().__init__({})
        self.aborted: list[str] = []

    async def abort_visitor(self, visitor: str) -> None:
        self.aborted.append(visitor)


async def test_only_the_last_of_a_visitors_sockets_counts() -> None:
    engines = _Engines()
    presence = Presence(engines, grace=0.0)
    presence.enter("v")
    presence.enter("v")
    presence.leave("v", code=1006)
    await asyncio.sleep(0.01)
    assert engines.aborted == []
    presence.leave("v", code=1006)
    await asyncio.sleep(0.01)
    assert engines.aborted == ["v"]


async def test_a_page_that_was_closed_is_not_waited_for() -> None:
    engines = _Engines()
    presence = Presence(engines, grace=3600.0)
    presence.enter("v")
    presence.leave("v", code=GOING_AWAY)
    await asyncio.sleep(0.01)
    assert engines.aborted == ["v"]


async def test_a_page_that_lost_its_connection_is_waited_for() -> None:
    engines = _Engines()
    presence = Presence(engines, grace=3600.0)
    presence.enter("v")
    presence.leave("v", code=1006)
    await asyncio.sleep(0.01)
    assert engines.aborted == []
    await presence.close()


# Trace and number of viewers


async def test_the_trace_is_what_the_recorder_holds() -> None:
    async with serving() as server, server.client() as client:
        await client.post("/generate", json={"prompt": "one", "max_tokens": 2})
        await recorded(server.naive.recorder, StepRecord, 2)
        response = await client.get("/telemetry/naive/trace")

        trace = read_trace(response.content.splitlines())
        assert trace.header == server.naive.recorder.header
        assert trace.records == [entry.record for entry in server.naive.recorder.since(0)]
        assert 'filename="naive.trace.jsonl"' in response.headers["content-disposition"]

        packed = await client.get("/telemetry/naive/trace?packed=true")
        assert gzip.decompress(packed.content) == response.content
        assert 'filename="naive.trace.jsonl.gz"' in packed.headers["content-disposition"]


async def test_an_engine_that_never_ran_has_no_trace() -> None:
    async with serving() as server, server.client() as client:
        response = await client.get("/telemetry/naive/trace")

    assert response.status_code == 400
    assert "not started yet" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["nope", "..%2f..%2fetc", "%00"])
async def test_a_trace_of_an_unknown_backend_is_a_404(name: str) -> None:
    async with serving() as server, server.client() as client:
        assert (await client.get(f"/telemetry/{name}/trace")).status_code == 404


async def test_viewers_are_counted_while_they_watch() -> None:
    async def viewers() -> dict[str, Any]:
        health = (await client.get("/health")).json()["backends"]
        return {name: backend["viewers"] for name, backend in health.items()}

    async with serving(FakeBackend("naive"), FakeBackend("generate")) as server, server.client() as client:
        await server.naive.start()
        async with server.feed("?backend=naive") as one, server.feed("?backend=naive") as two:
            await records_until(one, "snapshot")
            await records_until(two, "snapshot")
            assert await viewers() == {"naive": 2, "generate": 0}
        while (await viewers())["naive"]:  # until the server has seen both close
            pass


async def test_a_feed_goes_on_after_its_engine_died_and_came_back() -> None:
    async with serving() as server:
        await server.naive.start()
        async with server.feed() as feed:
            await text_until(feed, '"ready"')
            server.naive.die("The worker was killed.")
            back = as_records(await text_until(feed, '"ready"'))

    states = [record["state"] for record in back if record["type"] == "state"]
    assert states == ["crashed", "restarting", "restarting", "restarting", "ready"]
    assert [record["type"] for record in back].count("header") == 1
