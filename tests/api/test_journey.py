"""`?trace=1`: when each token of one's own request was where, from the engine's step to the socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from backends.api.journey import Journey
from backends.base import TokenChunk, Way
from backends.records import StepRecord, TokenEmitted
from tests.api.serving import Served, serving
from tests.engine_harness import request
from tests.fakes import FakeBackend

IN_ORDER = ("step_start", "emitted", "handed", "queued", "taken", "sent")
"""The scripted engine stamps its tokens within its step."""


async def frames_of(served: Served, query: str, max_tokens: int = 5) -> list[dict[str, Any]]:
    async with served.client() as client:
        response = await client.post(
            f"/generate_stream{query}", json={"prompt": "Once upon a time", "max_tokens": max_tokens}
        )
    assert response.status_code == 200
    return [json.loads(frame.removeprefix("data: ")) for frame in response.text.split("\n\n") if frame]


async def test_every_token_tells_when_it_was_where_in_the_order_of_its_way() -> None:
    async with serving() as served:
        before = time.monotonic()
        frames = await frames_of(served, "?trace=1")
        after = time.monotonic()
    assert [frame["trace"]["index"] for frame in frames] == list(range(5))
    for frame in frames:
        moments = [frame["trace"][name] for name in IN_ORDER]
        assert moments == sorted(moments)
        assert frame["trace"]["step_start"] <= frame["trace"]["step_end"] <= frame["trace"]["handed"]
        assert before <= moments[0]
        assert moments[-1] <= after


async def test_the_stamps_of_the_engine_are_those_of_its_records() -> None:
    async with serving() as served:
        frames = await frames_of(served, "?trace=1")
        records = [entry.record for entry in served.naive.recorder.history()[1]]
    steps = {record.step_id: record for record in records if isinstance(record, StepRecord)}
    tokens = {record.index: record for record in records if isinstance(record, TokenEmitted)}
    for frame in frames:
        told = frame["trace"]
        step = steps[told["step_id"]]
        assert told["emitted"] == tokens[told["index"]].time
        assert (told["step_start"], told["step_end"]) == (step.start_time, step.start_time + step.duration)


async def test_without_it_a_frame_is_what_it_always_was() -> None:
    async with serving() as served:
        for query in ("", "?trace=0"):
            for frame in await frames_of(served, query):
                assert set(frame) == {"token", "sequence_id"}


async def test_what_is_no_yes_or_no_is_refused() -> None:
    async with serving() as served, served.client() as client:
        response = await client.post("/generate_stream?trace=maybe", json={"prompt": "x"})
    assert response.status_code == 422
    assert response.json()["error"]["field"] == "trace"


async def test_requests_side_by_side_are_each_told_of_their_own_tokens_only() -> None:
    async with serving() as served:
        one, other = await asyncio.gather(frames_of(served, "?trace=1", 4), frames_of(served, "?trace=1", 6))
    assert [len(one), len(other)] == [4, 6]
    for frames in (one, other):
        assert len({frame["sequence_id"] for frame in frames}) == 1
        assert [frame["trace"]["index"] for frame in frames] == list(range(len(frames)))


async def test_records_that_are_gone_stay_untold() -> None:
    engine = FakeBackend("naive", capacity=3)
    async with serving(engine) as served:
        journey = Journey(engine, "never")
        await frames_of(served, "", 20)
    told = journey.stamps(TokenChunk(text=" a", index=0, way=Way(handed=1.0, queued=2.0, taken=3.0)))
    assert (told.step_id, told.step_start, told.step_end, told.emitted) == (None, None, None, None)
    assert (told.handed, told.queued, told.taken) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize("traced", [True, False])
async def test_only_a_traced_request_is_stamped(traced: bool) -> None:
    engine = FakeBackend("naive")
    async with serving(engine):
        asked = msgspec.structs.replace(request("r"), traced=traced)
        chunks = [chunk async for chunk in engine.generate(asked)]
    assert [chunk.way is not None for chunk in chunks] == [traced] * len(chunks)
