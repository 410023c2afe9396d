"""A snapshot and the records after it say the same as all the records."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from backends.records import (
    AnyRecord,
    EngineGauges,
    KVDelta,
    Phase,
    RequestArrived,
    RequestFinished,
    RequestSnapshot,
    Snapshot,
    StepRecord,
    TokenEmitted,
    TraceHeader,
    decode_record,
    encode_record,
)
from backends.snapshot import SnapshotBuilder
from tests import factories as make


def fold(records: Sequence[AnyRecord], builder: SnapshotBuilder | None = None) -> SnapshotBuilder:
    builder = builder or SnapshotBuilder()
    for record in records:
        builder.apply(record)
    return builder


# The plain twin: each field looked up in all the records, nothing accumulated


def plain_request(arrival: RequestArrived, later: Sequence[AnyRecord]) -> RequestSnapshot:
    """One request, from the records after its arrival."""
    name = arrival.request_id
    steps = [r for r in later if isinstance(r, StepRecord)]
    rows = [(s, r) for s in steps for r in s.rows if r.request_id == name]
    token_times = [r.time for r in later if isinstance(r, TokenEmitted) and r.request_id == name]
    mentions = [
        s for s in steps if name in (*[r.request_id for r in s.rows], *s.preempted_ids, *s.finished_ids)
    ]
    kv = [s.kv for s in steps if s.kv is not None]
    blocks: list[int] = []
    filled: int | None = None
    for delta in kv:
        blocks = [b for b in blocks if b not in delta.given_back.get(name, [])]
        filled = filled if blocks or name not in delta.given_back else None
        blocks += delta.taken.get(name, [])
        filled = delta.filled_slots.get(name, filled)
    return RequestSnapshot(
        arrived=arrival,
        first_scheduled_time=next((s.start_time for s, _ in rows), None),
        first_token_time=next(iter(token_times), None),
        last_token_time=next(reversed(token_times), None),
        num_output_tokens=len(token_times),
        sum_tokens_computed=sum(r.num_scheduled_tokens for _, r in rows),
        sum_attention_pairs=sum(
            r.num_scheduled_tokens * (r.num_computed_tokens + r.num_scheduled_tokens) for _, r in rows
        ),
        num_preemptions=sum(s.preempted_ids.count(name) for s in steps),
        running=bool(mentions) and name not in (*mentions[-1].preempted_ids, *mentions[-1].finished_ids),
        blocks=blocks,
        filled_slots=filled,
        reserved_slots=next((d.reserved_slots[name] for d in reversed(kv) if name in d.reserved_slots), None),
    )


def plain_requests(records: Sequence[AnyRecord]) -> list[RequestSnapshot]:
    in_flight = []
    for index, record in enumerate(records):
        if isinstance(record, RequestArrived):
            later = records[index + 1 :]
            ended = any(isinstance(r, RequestFinished) and r.request_id == record.request_id for r in later)
            if not ended:
                in_flight.append(plain_request(record, later))
    return in_flight


def plain_output_tokens(records: Sequence[AnyRecord]) -> int:
    """Tokens one by one, but for requests whose end tells how many there were."""
    total = sum(isinstance(r, TokenEmitted) for r in records)
    arrivals: dict[str, int] = {}
    for index, record in enumerate(records):
        if isinstance(record, RequestArrived):
            arrivals[record.request_id] = index
        elif isinstance(record, RequestFinished) and record.request_id in arrivals:
            since = records[arrivals.pop(record.request_id) : index]
            emitted = sum(isinstance(r, TokenEmitted) and r.request_id == record.request_id for r in since)
            if record.num_output_tokens is not None:
                total += record.num_output_tokens - emitted
    return total


def plain_gauges(records: Sequence[AnyRecord]) -> list[EngineGauges]:
    starts = [index for index, r in enumerate(records) if isinstance(r, TraceHeader)]
    told = [r for r in records[starts[-1] if starts else 0 :] if isinstance(r, EngineGauges)]
    servers = sorted({r.server for r in told}, key=lambda server: -1 if server is None else server)
    return [next(r for r in reversed(told) if r.server == server) for server in servers]


# Histories: a handful of requests that arrive once, step, are preempted, finish

names = st.sampled_from([f"r{n}" for n in range(4)])
block_lists = st.lists(st.integers(0, 9), max_size=3, unique=True)
rows = st.builds(make.row, names, st.integers(1, 5), st.integers(0, 9), st.sampled_from(Phase))
deltas = st.builds(
    KVDelta,
    num_free=st.none() | st.integers(0, 9),
    taken=st.dictionaries(names, block_lists, max_size=2),
    given_back=st.dictionaries(names, block_lists, max_size=2),
    ref_counts=st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=3),
    cached=block_lists,
    evicted=block_lists,
    filled_slots=st.dictionaries(names, st.integers(0, 99), max_size=2),
    reserved_slots=st.dictionaries(names, st.integers(0, 99), max_size=2),
)
steps = st.builds(
    make.step,
    st.integers(0, 99),
    st.lists(rows, max_size=3, unique_by=lambda r: r.request_id),
    st.floats(0, 99),
    num_padding_tokens=st.none() | st.integers(0, 9),
    preempted_ids=st.lists(names, max_size=2, unique=True),
    finished_ids=st.lists(names, max_size=2, unique=True),
    kv=st.none() | deltas,
)
others = st.one_of(
    steps,
    st.builds(make.token, names, st.integers(0, 9), st.floats(0, 99)),
    st.builds(make.finished, names, num_output_tokens=st.none() | st.integers(0, 99)),
    st.builds(make.gauges, server=st.none() | st.integers(0, 2), num_running=st.none() | st.integers(0, 9)),
    st.builds(make.header),
    st.builds(make.queues),
    st.builds(make.state),
)


@st.composite
def histories(draw: st.DrawFn) -> list[AnyRecord]:
    records: list[AnyRecord] = draw(st.lists(others, max_size=25))
    for name in draw(st.lists(names, unique=True)):
        records.insert(draw(st.integers(0, len(records))), make.arrived(name))
    return records


@given(histories())
def test_the_fold_says_what_a_look_through_all_records_says(records: list[AnyRecord]) -> None:
    snapshot = fold(records).snapshot(len(records), 0.0)
    steps = [r for r in records if isinstance(r, StepRecord)]
    padding = [s.num_padding_tokens for s in steps if s.num_padding_tokens is not None]

    assert snapshot.requests == plain_requests(records)
    assert snapshot.totals.get("steps", 0) == len(steps)
    assert snapshot.totals.get("tokens_computed", 0) == sum(
        r.num_scheduled_tokens for s in steps for r in s.rows
    )
    assert snapshot.totals.get("attention_pairs", 0) == sum(s.attention_pairs or 0 for s in steps)
    assert snapshot.totals.get("padding_tokens") == (sum(padding) if padding else None)
    assert snapshot.totals.get("output_tokens", 0) == plain_output_tokens(records)
    assert snapshot.totals.get("requests_finished", 0) == sum(isinstance(r, RequestFinished) for r in records)
    assert snapshot.gauges == plain_gauges(records)
    assert snapshot.next_step_id == (steps[-1].step_id + 1 if steps else 0)


@given(histories(), st.integers(0, 30))
def test_a_snapshot_and_the_rest_give_the_same_state_as_all_records(
    records: list[AnyRecord], cut: int
) -> None:
    half = decode_record(encode_record(fold(records[:cut]).snapshot(cut, 0.0)))
    assert isinstance(half, Snapshot)

    resumed = fold(records[cut:], SnapshotBuilder.from_snapshot(half))

    assert resumed.snapshot(0, 0.0) == fold(records).snapshot(0, 0.0)


def test_a_finished_request_is_gone_and_counted() -> None:
    snapshot = fold([make.arrived("a"), make.arrived("b"), make.finished("a")]).snapshot(3, 1.0)

    assert [r.arrived.request_id for r in snapshot.requests] == ["b"]
    assert snapshot.totals["requests_finished"] == 1


def test_blocks_follow_the_block_table_of_their_request() -> None:
    taken = make.step(0, [make.row("a")], kv=KVDelta(num_free=5, taken={"a": [7, 3, 9]}))
    given_back = make.step(
        1, [make.row("a")], kv=KVDelta(num_free=6, taken={"a": [1]}, given_back={"a": [3]})
    )
    snapshot = fold([make.arrived("a"), taken, given_back]).snapshot(3, 1.0)

    assert snapshot.requests[0].blocks == [7, 9, 1]
    assert snapshot.num_free_blocks == 6


def test_only_blocks_that_are_shared_have_a_reference_count() -> None:
    shared = make.step(0, [], kv=KVDelta(ref_counts={4: 2, 5: 3}))
    released = make.step(1, [], kv=KVDelta(ref_counts={4: 1}))

    assert fold([shared, released]).snapshot(2, 0.0).ref_counts == {5: 3}


def test_a_new_header_means_an_empty_pool() -> None:
    filled = make.step(0, [], kv=KVDelta(num_free=2, cached=[1, 2], ref_counts={1: 2}))
    snapshot = fold([make.header(), filled, make.header()]).snapshot(3, 0.0)

    assert (snapshot.num_free_blocks, snapshot.cached_blocks, snapshot.ref_counts) == (None, [], {})


def test_of_the_gauges_the_last_of_each_server_is_kept_until_a_new_header() -> None:
    told = [make.gauges(1.0, server=1), make.gauges(2.0, server=0), make.gauges(3.0, server=1)]
    builder = fold([make.header(), *told])

    assert [(g.server, g.time) for g in builder.snapshot(4, 3.0).gauges] == [(0, 2.0), (1, 3.0)]
    assert fold([make.header()], builder).snapshot(5, 4.0).gauges == []


def test_what_an_engine_does_not_expose_has_no_total() -> None:
    blind = make.step(0, [make.row()], attention_pairs=None, num_padding_tokens=None)
    totals = fold([blind]).snapshot(1, 0.0).totals

    assert "attention_pairs" not in totals
    assert "padding_tokens" not in totals
