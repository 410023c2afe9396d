"""What a viewer is sent, frame by frame, without a socket."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import recorder as recorder_module
from backends.api import feed as feed_module
from backends.api.feed import Hub, Viewer
from backends.recorder import Recorder
from backends.records import AnyRecord, State, encode_record
from backends.registry import Registry
from tests import factories as make
from tests.api.serving import Counter
from tests.fakes import FakeBackend


class Room:
    """Two backends that have not started, and a hub that ticks when told to."""

    def __init__(self, capacity: int = 10_000) -> None:
        naive = FakeBackend("naive", capacity=capacity)
        registry = Registry({"naive": lambda: naive, "generate": lambda: FakeBackend("generate")})
        self.observed: list[tuple[str, AnyRecord]] = []
        self.hub = Hub(registry, lambda backend, record: self.observed.append((backend, record)))
        self.naive: Recorder = naive.recorder
        self.generate: Recorder = registry.get("generate").recorder
        self.hub.advance()

    def started(self) -> Room:
        self.naive.extend([make.header(start_time=7.0), make.state(State.READY)])
        self.hub.advance()
        return self

    def emit(self, *records: AnyRecord) -> None:
        self.naive.extend(records)
        self.hub.advance()

    def viewer(self, since: int | None = None) -> Client:
        return Client(Viewer(self.hub, "naive", since), "naive", since)


class Client:
    """Reads a viewer's frames and counts their records."""

    def __init__(self, viewer: Viewer, backend: str, since: int | None) -> None:
        self.viewer = viewer
        self._counter = Counter(backend, since)

    @property
    def version(self) -> int | None:
        return self._counter.version

    def read(self) -> list[dict[str, Any]]:
        """All frames that are ready, as one list of records."""
        got: list[dict[str, Any]] = []
        while (frame := self.viewer.next_frame()) is not None:
            got += json.loads(frame)
        for record in got:
            self._counter.see(record)
        return got


def kinds(records: list[dict[str, Any]]) -> list[str]:
    return [record["type"] for record in records]


def test_before_the_engine_has_started_only_states_come() -> None:
    room = Room()
    viewer = room.viewer()

    first = viewer.read()
    room.emit(make.state(State.STARTING, progress=0.5))

    assert [(r["type"], r["backend"], r["state"]) for r in first] == [
        ("state", "naive", "idle"),
        ("state", "generate", "idle"),
    ]
    assert [(r["state"], r["progress"]) for r in viewer.read()] == [("starting", 0.5)]


def test_when_it_has_started_header_snapshot_and_history_follow() -> None:
    room = Room()
    viewer = room.viewer()
    viewer.read()
    room.started()

    records = viewer.read()

    assert kinds(records) == ["header", "snapshot", "state", "header", "state"]
    assert records[1]["version"] == 0
    assert viewer.version == room.naive.version


def test_a_new_viewer_gets_the_states_of_all_before_the_snapshot() -> None:
    room = Room(capacity=1).started()

    records = room.viewer().read()

    assert kinds(records) == ["header", "state", "state", "snapshot", "state"]
    assert [(r["backend"], r["state"]) for r in records if r["type"] == "state"] == [
        ("naive", "idle"),  # as it was at the snapshot
        ("generate", "idle"),
        ("naive", "ready"),
    ]


def test_a_viewer_in_step_gets_each_record_once_and_in_order() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.emit(make.arrived(), make.token(index=0))
    room.emit(make.token(index=1))

    assert [r.get("index") for r in viewer.read()] == [None, 0, 1]
    assert viewer.read() == []


def test_records_are_held_back_until_the_tick() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.naive.append(make.token())

    assert viewer.read() == []
    room.hub.advance()
    assert kinds(viewer.read()) == ["token"]


def test_a_burst_makes_one_frame() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.emit(*[make.token(index=index) for index in range(300)])

    assert viewer.viewer.next_frame() is not None
    assert viewer.viewer.next_frame() is None


def test_viewers_in_step_are_sent_the_same_string() -> None:
    room = Room().started()
    viewers = [room.viewer() for _ in range(30)]
    for viewer in viewers:
        viewer.read()
    room.emit(make.token())

    frames = [viewer.viewer.next_frame() for viewer in viewers]

    assert frames[0] is not None
    assert all(frame is frames[0] for frame in frames)


def test_each_record_is_serialised_once_whatever_the_number_of_viewers() -> None:
    room = Room().started()
    viewers = [room.viewer() for _ in range(30)]
    with (
        patch.object(recorder_module, "encode_record", wraps=encode_record) as encode,
        patch.object(feed_module, "encode_record", wraps=encode_record) as encode_snapshot,
    ):
        for viewer in viewers:
            viewer.read()
        opening = encode_snapshot.call_count
        for index in range(10):
            room.emit(make.token(index=index))
            for viewer in viewers:
                viewer.read()

    assert encode.call_count == 10
    assert encode_snapshot.call_count == opening


def test_whoever_comes_back_gets_what_was_missed_and_no_snapshot() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.emit(make.token(index=5))

    again = room.viewer(since=viewer.version)

    assert kinds(again.read()) == ["header", "state", "token"]
    assert again.version == room.naive.version


@pytest.mark.parametrize("since", [0, 999])
def test_a_since_outside_the_log_gets_a_snapshot(since: int) -> None:
    room = Room(capacity=2).started()

    viewer = room.viewer(since)

    assert "snapshot" in kinds(viewer.read())
    assert viewer.version == room.naive.version


def test_who_falls_out_of_the_log_goes_on_from_a_snapshot_of_the_head() -> None:
    room = Room(capacity=10).started()
    viewer = room.viewer()
    viewer.read()
    room.emit(make.arrived("a"), *[make.token("a", index) for index in range(50)])

    records = viewer.read()

    assert kinds(records) == ["header", "state", "snapshot"]
    assert records[2]["requests"][0]["num_output_tokens"] == 50
    assert viewer.version == room.naive.version


def test_who_is_too_far_behind_is_skipped_forward_though_the_log_is_long() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.emit(*[make.token(index=index) for index in range(feed_module.MAX_LAG + 1)])

    assert kinds(viewer.read()) == ["header", "state", "snapshot"]


def test_a_long_history_is_no_reason_to_skip() -> None:
    room = Room().started()
    room.emit(*[make.token(index=index) for index in range(feed_module.MAX_LAG + 1)])
    viewer = room.viewer()

    assert kinds(viewer.read()).count("token") == feed_module.MAX_LAG + 1
    assert viewer.version == room.naive.version


def test_history_comes_in_frames_of_bounded_size() -> None:
    room = Room().started()
    long_id = "x" * 2000
    room.emit(*[make.token(long_id, index) for index in range(1000)])
    viewer = room.viewer().viewer
    frames = []
    while (frame := viewer.next_frame()) is not None:
        frames.append(frame)

    assert max(map(len, frames)) < feed_module.FRAME_BYTES + 1000
    assert max(len(json.loads(frame)) for frame in frames) <= feed_module.FRAME_RECORDS
    assert sum(len(json.loads(frame)) for frame in frames) == 1000 + 6


def test_a_record_larger_than_a_frame_still_comes() -> None:
    room = Room().started()
    room.emit(make.token("x" * (feed_module.FRAME_BYTES + 1)), make.token("small"))

    assert [r["request_id"][:5] for r in room.viewer().read() if r["type"] == "token"] == ["xxxxx", "small"]


def test_states_of_other_engines_come_live_and_alone_or_with_records() -> None:
    room = Room().started()
    viewer = room.viewer()
    viewer.read()
    room.generate.append(make.state(State.STARTING, "generate"))
    room.hub.advance()
    alone = viewer.read()
    room.generate.append(make.state(State.READY, "generate"))
    room.emit(make.token())
    together = viewer.read()

    assert [(r["backend"], r["state"]) for r in alone] == [("generate", "starting")]
    assert [(r["type"], r.get("state")) for r in together] == [("state", "ready"), ("token", None)]
    assert viewer.version == room.naive.version


def test_every_record_is_observed_once_and_in_order() -> None:
    room = Room().started()
    room.emit(make.token(index=0))
    room.emit(make.token(index=1))

    seen = [record for backend, record in room.observed if backend == "naive"]
    assert seen == [entry.record for entry in room.naive.since(0)]


def test_records_that_were_dropped_before_a_tick_are_skipped_not_repeated() -> None:
    room = Room(capacity=3).started()
    room.observed.clear()
    room.emit(*[make.token(index=index) for index in range(10)])

    assert [record for _, record in room.observed] == [make.token(index=index) for index in (7, 8, 9)]


batches = st.lists(
    st.sampled_from([make.header(), make.state(), make.arrived("a"), make.token("a"), make.finished("a")]),
    max_size=12,
)


@given(
    history=st.lists(st.tuples(batches, st.booleans(), st.booleans()), max_size=8),
    capacity=st.integers(1, 12),
    since=st.none() | st.integers(0, 20),
)
def test_a_viewer_always_knows_the_version_to_come_back_with(
    history: list[tuple[list[AnyRecord], bool, bool]], capacity: int, since: int | None
) -> None:
    room = Room(capacity)
    viewer = room.viewer(since)
    for records, reads, other_changes in history:
        if other_changes:
            room.generate.append(make.state(State.STARTING, "generate"))
        room.emit(*records)
        if reads:
            viewer.read()
    viewer.read()

    if room.naive.header is not None:
        assert viewer.version == room.naive.version
