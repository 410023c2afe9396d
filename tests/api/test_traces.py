"""Recordings over HTTP: what is offered, and their lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest

from backends.records import encode_record
from backends.shelf import Shelf, read_recordings
from backends.trace import read_trace
from tests import factories as make
from tests.api.serving import serving

HEADER = make.header(model="a <b>model</b>", start_time=5.0)
RECORDS = [make.arrived(time=6.0), make.token(time=8.0), make.finished(time=8.5)]
CONTENT = b"".join(encode_record(record) + b"\n" for record in (HEADER, *RECORDS))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    (tmp_path / "small.jsonl.gz").write_bytes(gzip.compress(CONTENT))
    (tmp_path / "plain.jsonl").write_bytes(CONTENT)
    files = [str(tmp_path / name) for name in ("small.jsonl.gz", "plain.jsonl")]
    return Shelf(read_recordings(files), folder=tmp_path / "none")


async def test_the_list_tells_what_each_recording_is(shelf: Shelf) -> None:
    async with serving(shelf=shelf) as server, server.client() as client:
        told = (await client.get("/traces")).json()

    assert told["opens_with"] == "small"
    assert [recording["name"] for recording in told["recordings"]] == ["small", "plain"]
    assert told["recordings"][0] == told["recordings"][0] | {
        "backend": "naive",
        "model": "a <b>model</b>",
        "is_shipped": False,
        "hardware": "test",
        "versions": {"servescope": "0"},
        "duration": 3.5,
        "num_records": 4,
        "num_requests": 1,
        "num_steps": 0,
    }


@pytest.mark.parametrize("name", ["small", "plain"])
@pytest.mark.parametrize("accepts", ["gzip", "identity"])
async def test_the_lines_are_those_of_the_file(shelf: Shelf, name: str, accepts: str) -> None:
    async with serving(shelf=shelf) as server, server.client() as client:
        answer = await client.get(f"/traces/{name}", headers={"Accept-Encoding": accepts})

    is_packed = (name, accepts) == ("small", "gzip")
    assert answer.headers.get("content-encoding") == ("gzip" if is_packed else None)
    assert answer.content == CONTENT
    assert read_trace(answer.content.splitlines()).records == RECORDS


async def test_only_what_is_listed_can_be_had(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_bytes(CONTENT)
    (tmp_path / "plain.jsonl").unlink()
    async with serving(shelf=shelf) as server, server.client() as client:
        for name in ("secret", "..%2fsecret", "%2e%2e", "small.jsonl.gz", "plain", "%00"):
            answer = await client.get(httpx.URL(f"/traces/{name}"))
            assert answer.status_code == 404, name
        unknown = (await client.get("/traces/nothing")).json()["error"]

    assert (unknown["code"], unknown["field"]) == ("unknown_recording", "name")
    assert "'nothing'" in unknown["message"]
