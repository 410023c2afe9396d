"""A real race: SmolLM2 on three engines over HTTP, its figures worked out once more from the traces
by code that shares nothing with the app's."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.app_server import app_server

ENGINES = ("generate", "naive", "paged")
WORKLOAD = {"students": 4, "output_tokens": [6, 12], "prompt_words": [4, 30], "shared_words": 20, "seed": 7}
PATIENCE = 240
"""Seconds: a limit for what goes wrong; three engines load the model first."""

pytestmark = pytest.mark.timeout(PATIENCE + 60)

Record = dict[str, Any]


@pytest.fixture(scope="module")
def raced() -> Iterator[dict[str, tuple[Record, list[Record]]]]:
    """Engine → its result and the trace of its race."""
    with (
        app_server("--backends", ",".join(ENGINES), "--preload", "") as address,
        httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False) as client,
    ):
        body = {"workload": WORKLOAD, "entries": [{"backend": name} for name in ENGINES]}
        race_id = client.post("/workloads/races", json=body).json()["race_id"]
        news: Record = {"version": -1, "state": "queued"}
        while news["state"] in ("queued", "running"):
            news = client.get(f"/workloads/races/{race_id}/events?since={news['version']}").json()
        entries = client.get(f"/workloads/races/{race_id}").json()["entries"]
        yield {entry["backend"]: (entry["result"], trace(client, entry["backend"])) for entry in entries}


def trace(client: httpx.Client, backend: str) -> list[Record]:
    """Without the request that warmed the engine up, but for its header."""
    records = [json.loads(line) for line in client.get(f"/telemetry/{backend}/trace").text.splitlines()]
    warm = next(number for number, record in enumerate(records) if record["type"] == "finished")
    return [*of(records[:warm], "header"), *records[warm + 1 :]]


def of(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record["type"] == kind]


def times(records: list[Record]) -> dict[str, list[float]]:
    """Request → the times of its tokens."""
    found: dict[str, list[float]] = defaultdict(list)
    for token in of(records, "token"):
        found[token["request_id"]].append(token["time"])
    return found


def rows(records: list[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for step in of(records, "step"):
        for row in step["rows"]:
            found[row["request_id"]].append(row)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_latencies_are_those_of_the_trace(raced: dict[str, tuple[Record, list[Record]]], engine: str) -> None:
    result, records = raced[engine]
    arrived = {record["request_id"]: record["time"] for record in of(records, "arrived")}
    tokens = times(records)
    assert result["num_complete"] == len(arrived) == 4
    assert result["output_tokens"] == sum(map(len, tokens.values())) == 36
    ttft = statistics.median(tokens[name][0] - time for name, time in arrived.items())
    assert result["ttft"]["p50"] == pytest.approx(ttft)
    gaps = [b - a for t in tokens.values() for a, b in pairwise(t)]
    assert result["itl"]["p50"] == pytest.approx(statistics.median(gaps))
    span = max(t[-1] for t in tokens.values()) - min(arrived.values())
    assert result["tokens_per_second"] == pytest.approx(36 / span)


@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_are_those_of_the_trace(raced: dict[str, tuple[Record, list[Record]]], engine: str) -> None:
    result, records = raced[engine]
    tokens = times(records)
    ended = {record["request_id"]: record["time"] for record in of(records, "finished")}
    by_arrival = sorted(of(records, "arrived"), key=lambda record: record["time"])
    lanes = sorted(result["lanes"], key=lambda lane: lane["arrived"])
    for record, lane in zip(by_arrival, lanes, strict=True):
        name = record["request_id"]
        since_arrival = [time - lane["arrived"] for time in (*lane["token_times"], lane["ended"])]
        expected = [time - record["time"] for time in (*tokens[name], ended[name])]
        assert since_arrival == pytest.approx(expected, abs=2e-4)
    assert result["finish_time"] == pytest.approx(max(lane["ended"] for lane in lanes), abs=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_are_those_of_the_trace(raced: dict[str, tuple[Record, list[Record]]], engine: str) -> None:
    result, records = raced[engine]
    assert result["padding_tokens"] == sum(step["num_padding_tokens"] for step in of(records, "step"))
    again = 0
    for done in rows(records).values():
        needed = max(row["num_computed_tokens"] + row["num_scheduled_tokens"] for row in done)
        found = done[0]["num_computed_tokens"]
        again += sum(row["num_scheduled_tokens"] for row in done) - (needed - found)
    assert result["recomputed_tokens"] == again
    assert result["preemptions"] == sum(len(step.get("preempted_ids", [])) for step in of(records, "step"))


def test_the_waste_of_what_was_reserved_is_that_of_the_trace(
    raced: dict[str, tuple[Record, list[Record]]],
) -> None:
    result, records = raced["generate"]
    told = [step["kv"] for step in of(records, "step")]
    reserved = sum(sum(kv["reserved_slots"].values()) for kv in told)
    filled = sum(sum(kv["filled_slots"].values()) for kv in told)
    assert result["kv_waste"] == pytest.approx(1 - filled / reserved)


def test_the_waste_of_blocks_is_that_of_the_trace(raced: dict[str, tuple[Record, list[Record]]]) -> None:
    result, records = raced["paged"]
    block_size = of(records, "header")[-1]["engine"]["block_size"]
    tables: dict[str, list[int]] = defaultdict(list)
    slots, filled = 0, 0
    for step in of(records, "step"):
        for name, blocks in step["kv"].get("taken", {}).items():
            tables[name] += blocks
        for name in step["kv"].get("given_back", {}):
            tables[name] = []
        held = {name: len(blocks) for name, blocks in tables.items() if blocks}
        slots += block_size * sum(held.values())
        filled += sum(step["kv"]["filled_slots"][name] for name in held)
    assert result["kv_waste"] == pytest.approx(1 - filled / slots)


def test_each_engine_pays_what_it_is_known_for(raced: dict[str, tuple[Record, list[Record]]]) -> None:
    generate, naive, paged = (raced[name][0] for name in ENGINES)
    assert naive["recomputed_tokens"] > 0
    assert naive["padding_tokens"] > 0
    assert naive["kv_waste"] is None
    assert (paged["recomputed_tokens"], paged["padding_tokens"]) == (0, 0)
    assert generate["kv_waste"] > 0.5 > paged["kv_waste"]
