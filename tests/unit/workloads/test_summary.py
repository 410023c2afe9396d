"""The figures of a race, from records alone: of the run's own requests and of nobody else's."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from backends.errors import InvalidRequest
from backends.records import (
    AnyRecord,
    EngineConfig,
    Exposure,
    FinishReason,
    KVDelta,
    Phase,
    RequestArrived,
    RequestFinished,
    StepRecord,
    TokenEmitted,
)
from backends.workloads.run import Run, run_on
from backends.workloads.summary import MOST_TOKEN_TIMES, summary, thinned
from backends.workloads.workload import Workload, plan
from tests import factories as make
from tests.fakes import FakeBackend


def run_with(*records: AnyRecord, request_ids: tuple[str, ...] = ("a", "b"), **header: object) -> Run:
    """A run that began at 100."""
    return Run("naive", 100.0, list(request_ids), 0, make.header(**header), list(records))


def two_requests() -> list[AnyRecord]:
    """``a`` runs alone, then with ``b``, which waits a step for its blocks."""
    return [
        make.arrived("a", 100.5, max_tokens=3),
        make.arrived("b", 101.0, max_tokens=2),
        make.step(0, [make.row("a", 4, phase=Phase.PREFILL)], 101.0),
        make.token("a", 0, 102.0),
        make.step(1, [make.row("a", 1, 4), make.row("b", 4, phase=Phase.PREFILL)], 102.0),
        make.token("a", 1, 103.0),
        make.token("b", 0, 103.0),
        make.step(2, [make.row("a", 1, 5)], 103.0, preempted_ids=["b"]),
        make.token("a", 2, 105.0),
        make.finished("a", 105.0),
        make.step(3, [make.row("b", 5, 0)], 106.0),
        make.token("b", 1, 107.0),
        make.finished("b", 107.5),
    ]


def test_times_are_seconds_since_the_run_began() -> None:
    result = summary(run_with(*two_requests()))

    assert result.finish_time == 7.5
    assert (result.num_requests, result.num_complete, result.num_failed) == (2, 2, 0)
    first, second = result.lanes
    assert (first.student, first.arrived, first.first_scheduled, first.ended) == (0, 0.5, 1.0, 5.0)
    assert first.token_times == [2.0, 3.0, 5.0]
    assert first.preempted == []
    assert second.token_times == [3.0, 7.0]
    assert second.preempted == [(3.0, 6.0)]


def test_latencies_and_counts_are_those_of_the_records() -> None:
    result = summary(run_with(*two_requests()))

    assert result.ttft is not None
    assert result.itl is not None
    assert (result.ttft.p50, result.itl.p50) == (1.75, 2.0)
    assert result.output_tokens == 5
    assert result.tokens_per_second == pytest.approx(5 / 6.5)
    assert result.preemptions == 1
    assert result.recomputed_tokens == 4  # b had 4 of its 5 before it lost them
    assert result.cached_tokens is None


def test_a_request_that_waits_for_its_blocks_again_is_preempted_until_now() -> None:
    records = [
        record for record in two_requests() if not isinstance(record, StepRecord) or record.step_id < 3
    ]

    assert summary(run_with(*records[:10])).lanes[1].preempted == [(3.0, None)]


def test_other_peoples_requests_are_counted_and_otherwise_left_out() -> None:
    alone = summary(run_with(*two_requests()))
    crowd = two_requests()
    crowd.insert(0, make.arrived("x", 50.0))
    crowd.insert(2, make.step(9, [make.row("y", 64)], 100.6, num_padding_tokens=7))
    crowd.append(make.token("x", 0, 200.0))
    crowd.append(make.finished("x", 200.0))
    beside = summary(run_with(*crowd))

    assert (alone.num_others, beside.num_others) == (0, 2)
    for field in (
        "finish_time",
        "ttft",
        "itl",
        "output_tokens",
        "padding_tokens",
        "recomputed_tokens",
        "lanes",
    ):
        assert getattr(beside, field) == getattr(alone, field), field


def test_padding_of_a_shared_batch_is_that_of_the_own_rows() -> None:
    rows = [make.row("a", 4), make.row("x", 10), make.row("b", 7)]
    shared = make.step(0, rows, input_shape=[3, 10], num_padding_tokens=9)
    own = make.step(1, [make.row("a", 5), make.row("b", 8)], input_shape=[2, 8], num_padding_tokens=3)

    assert summary(run_with(shared, own)).padding_tokens == 9 + 3


def test_padding_that_cannot_be_told_apart_is_not_exposed() -> None:
    rows = [make.row("a", 4), make.row("x", 10)]

    assert summary(run_with(make.step(0, rows, num_padding_tokens=5))).padding_tokens is None
    assert summary(run_with(make.step(0, rows, num_padding_tokens=0))).padding_tokens == 0
    assert summary(run_with(make.step(0, rows[:1], num_padding_tokens=None))).padding_tokens is None


def test_an_engine_without_steps_exposes_latencies_only() -> None:
    told = [record for record in two_requests() if not isinstance(record, StepRecord)]
    result = summary(run_with(*told, measured={"batch": Exposure.NOT_EXPOSED}))

    assert result.ttft is not None
    assert result.ttft.p50 == 1.75
    counts = (result.padding_tokens, result.recomputed_tokens, result.preemptions, result.cached_tokens)
    assert counts == (None,) * 4
    assert (result.kv_waste, result.finished_rows) == (None, None)
    assert result.lanes[0].first_scheduled is None


def test_what_was_reserved_and_never_filled_is_waste() -> None:
    def step(step_id: int, filled: int) -> StepRecord:
        kv = KVDelta(filled_slots={"a": filled, "x": 16}, reserved_slots={"a": 16, "x": 16})
        return make.step(step_id, [make.row("a")], kv=kv)

    assert summary(run_with(step(0, 4), step(1, 8))).kv_waste == 1 - 12 / 32


def test_of_blocks_only_the_last_is_not_full() -> None:
    records = [
        make.step(0, [make.row("a", 6)], kv=KVDelta(taken={"a": [0, 1]}, filled_slots={"a": 6})),
        make.step(1, [make.row("a", 1, 6)], kv=KVDelta(taken={"x": [5]}, filled_slots={"a": 7, "x": 1})),
        make.step(2, [make.row("x")], kv=KVDelta(given_back={"a": [0, 1]}, filled_slots={"x": 2})),
    ]

    assert summary(run_with(*records, engine=EngineConfig(block_size=4))).kv_waste == 1 - 13 / 16


def test_an_engine_without_a_cache_wastes_none_of_it() -> None:
    assert summary(run_with(make.step(0, [make.row("a", 4)]))).kv_waste is None


def test_what_prefix_caching_found_counts_once_for_each_request() -> None:
    records = [
        make.step(0, [make.row("a", 4, 16, num_cached_tokens=16)]),
        make.step(1, [make.row("a", 1, 20, num_cached_tokens=16), make.row("b", 20, num_cached_tokens=0)]),
    ]

    assert summary(run_with(*records)).cached_tokens == 16


def test_a_request_that_was_refused_is_a_lane_with_its_reason() -> None:
    run = run_with(*two_requests(), request_ids=("a", "b", "c"))
    run.errors["c"] = InvalidRequest("The prompt has 100 tokens.")
    result = summary(run)

    assert (result.num_failed, result.error) == (1, "The prompt has 100 tokens.")
    assert (result.lanes[2].arrived, result.lanes[2].reason) == (None, FinishReason.ERROR)


def test_answers_that_the_model_ended_early_are_said() -> None:
    records = [make.arrived("a", 100.0, max_tokens=5), make.token("a", 0, 101.0)]
    result = summary(run_with(*records, make.finished("a", 101.0, FinishReason.STOP)))

    assert (result.num_complete, result.num_short) == (1, 1)


def test_long_answers_keep_their_first_and_last_token_and_even_gaps() -> None:
    times = [float(index) for index in range(1500)]
    kept = thinned(times, MOST_TOKEN_TIMES)

    assert len(kept) <= MOST_TOKEN_TIMES
    assert (kept[0], kept[-1]) == (0.0, 1499.0)
    assert {later - earlier for earlier, later in pairwise(kept[:-1])} == {3.0}
    assert thinned(times[:3], 3) == times[:3]


async def test_a_real_run_is_summed_up_as_a_plain_reading_of_its_records_says() -> None:
    engine = FakeBackend(step_seconds=0.002)
    run = await run_on(engine, plan(Workload(students=6, output_tokens=(2, 9))))
    await engine.stop()
    result = summary(run)

    arrived = {r.request_id: r.time for r in run.records if isinstance(r, RequestArrived)}
    tokens: dict[str, list[float]] = {name: [] for name in run.request_ids}
    for record in run.records:
        if isinstance(record, TokenEmitted):
            tokens[record.request_id].append(record.time)
    ends = [record.time for record in run.records if isinstance(record, RequestFinished)]
    steps = [record for record in run.records if isinstance(record, StepRecord)]
    assert result.finish_time == max(ends) - run.start_time
    assert result.output_tokens == sum(len(times) for times in tokens.values()) == 33
    ttft = sorted(tokens[name][0] - arrived[name] for name in run.request_ids)
    assert result.ttft is not None
    assert math.isclose(result.ttft.p50, (ttft[2] + ttft[3]) / 2)
    assert result.padding_tokens == sum(
        max(row.num_scheduled_tokens for row in step.rows) - row.num_scheduled_tokens
        for step in steps
        for row in step.rows
    )
    computed = sum(row.num_scheduled_tokens for step in steps for row in step.rows)
    lengths = dict.fromkeys(run.request_ids, 0)
    for step in steps:
        for row in step.rows:
            lengths[row.request_id] = max(lengths[row.request_id], row.num_scheduled_tokens)
    assert result.recomputed_tokens == computed - sum(lengths.values())
    assert [lane.num_tokens for lane in result.lanes] == [2, 9] * 3
