"""The wall clock jumps by hours while requests run: nothing that is measured or waited for moves."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.metrics import timelines_of
from backends.records import time_of
from tests.api.serving import serving

ROOT = Path(__file__).resolve().parents[2]
HOURS = 3600.0
WALL_CLOCK = {"time.time", "datetime.now", "datetime.utcnow", "date.today", "time.time_ns", "datetime.today"}
ONLY_SHOWN = {
    "backends/api/openai.py": "`created` of OpenAI's API",
    "backends/api/openai_choices.py": "the same",
    "backends/archive.py": "in the name of a file, which is never written over",
    "backends/hosted.py": "`started_at` of a header",
    "backends/remote/client.py": "`Retry-After` with a date, of which 5 s are waited at most",
    "backends/remote/header.py": "`started_at`",
    "backends/text.py": "the date that a chat template asks for",
}


async def test_requests_and_their_records_go_on_evenly_while_the_wall_clock_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_time = time.time
    jumps = iter([6 * HOURS, -30 * HOURS, 0.0] * 1000)
    monkeypatch.setattr(time, "time", lambda: true_time() + next(jumps))
    async with serving() as server, server.client() as client, asyncio.timeout(20):
        asked = [client.post("/generate", json={"prompt": "one two", "max_tokens": 8}) for _ in range(4)]
        answers = await asyncio.gather(*asked)
        records = [entry.record for entry in server.naive.recorder.since(0)]

    assert [answer.status_code for answer in answers] == [200] * 4
    times = [time_of(record) for record in records]
    assert max(times) - min(times) < HOURS
    timelines = timelines_of(records)
    assert len(timelines) == 4
    assert all(0 <= timeline.ttft <= timeline.e2e < HOURS for timeline in timelines)  # type: ignore[operator]


def test_the_wall_clock_is_read_only_where_it_is_shown() -> None:
    """All else is on the monotonic clock."""
    files = [ROOT / "app.py", *(ROOT / "backends").rglob("*.py"), *(ROOT / "components").rglob("*.py")]
    readers = {path.relative_to(ROOT).as_posix() for path in files if _calls(path, WALL_CLOCK.__contains__)}
    assert readers == set(ONLY_SHOWN)


def _calls(path: Path, is_meant: Callable[[str], bool]) -> bool:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Call) and is_meant(ast.unparse(node.func)) for node in nodes)
