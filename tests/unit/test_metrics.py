"""Latencies and waste, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from backends.metrics import (
    RequestTimeline,
    Summary,
    TimelineReducer,
    latency_summary,
    percentile,
    timelines_of,
)
from backends.records import AnyRecord, EngineConfig, FinishReason, KVDelta, Phase
from tests import factories as make


def one_request(*token_times: float, finish: FinishReason | None = FinishReason.LENGTH) -> RequestTimeline:
    """Arrives at 10, is first scheduled at 11, then gets its tokens."""
    records: list[AnyRecord] = [
        make.arrived("a", time=10.0),
        make.step(0, [make.row("a", 4)], start_time=11.0),
    ]
    records += [make.token("a", index, time) for index, time in enumerate(token_times)]
    if finish is not None:
        records.append(make.finished("a", 99.0, finish))
    return timelines_of(records)[0]


def test_latencies_of_one_request() -> None:
    timeline = one_request(12.0, 12.5, 13.5, 16.0)

    assert timeline.queue_time == 1.0
    assert timeline.ttft == 2.0
    assert timeline.itl == [0.5, 1.0, 2.5]
    assert timeline.tpot == pytest.approx(4.0 / 3)
    assert timeline.e2e == 6.0
    assert timeline.tokens_per_second == pytest.approx(4 / 6.0)


def test_one_token_has_no_tpot_and_no_gap() -> None:
    timeline = one_request(12.0)

    assert timeline.tpot is None
    assert timeline.itl == []
    assert timeline.e2e == timeline.ttft == 2.0


def test_a_request_without_a_token_has_no_latency_but_its_queue_time() -> None:
    timeline = one_request(finish=FinishReason.ABORT)

    assert timeline.queue_time == 1.0
    assert (timeline.ttft, timeline.tpot, timeline.e2e, timeline.tokens_per_second) == (None,) * 4


def test_a_waiting_request_has_no_queue_time_yet() -> None:
    assert timelines_of([make.arrived("a", time=10.0)])[0].queue_time is None


def test_e2e_is_unknown_while_tokens_may_still_come() -> None:
    timeline = one_request(12.0, 13.0, finish=None)

    assert timeline.e2e is None
    assert timeline.ttft == 2.0
    assert timeline.tokens_per_second == pytest.approx(2 / 3)


def test_two_tokens_in_one_delivery_are_two_tokens_with_a_gap_of_zero() -> None:
    timeline = one_request(12.0, 12.0, 13.0)
    summary = latency_summary([timeline])

    assert timeline.itl == [0.0, 1.0]
    assert summary.num_zero_gaps == 1
    assert summary.itl is not None
    assert summary.itl.count == 2


def counted_at_the_end(*token_times: float, num_output_tokens: int) -> RequestTimeline:
    """A remote request: arrives at 10, its tokens come in chunks, and ``usage`` tells how many."""
    chunks = [make.token("a", index, time) for index, time in enumerate(token_times)]
    end = make.finished("a", 99.0, num_prompt_tokens=7, num_output_tokens=num_output_tokens)
    return timelines_of([make.arrived("a", time=10.0, num_prompt_tokens=None), *chunks, end])[0]


def test_what_the_server_counted_at_the_end_is_used_for_all_but_the_gaps() -> None:
    timeline = counted_at_the_end(12.0, 14.0, 15.0, num_output_tokens=7)

    assert (timeline.num_prompt_tokens, timeline.num_output_tokens) == (7, 7)
    assert timeline.tpot == pytest.approx(3.0 / 6)
    assert timeline.tokens_per_second == pytest.approx(7 / 5.0)
    assert timeline.itl == [2.0, 1.0], "gaps between what came, whose insides nobody knows"
    assert latency_summary([timeline]).tokens_per_second == pytest.approx(7 / 5.0)


def test_tokens_that_all_came_at_once_have_no_tpot() -> None:
    assert counted_at_the_end(12.0, num_output_tokens=7).tpot is None
    assert one_request(12.0, 12.0, 12.0).tpot is None


def test_a_prompt_that_only_its_server_can_count_is_unknown_until_the_end() -> None:
    timeline = timelines_of([make.arrived("a", num_prompt_tokens=None)])[0]

    assert (timeline.num_prompt_tokens, timeline.num_output_tokens) == (None, 0)


def test_preemptions_are_kept_with_their_times() -> None:
    records = [make.arrived("a"), make.step(3, [], start_time=7.0, preempted_ids=["a"])]

    assert timelines_of(records)[0].preemption_times == [7.0]


def test_percentiles_lie_between_the_two_nearest_ranks() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 95) == pytest.approx(4.8)
    assert percentile([7.0], 99) == 7.0


def test_a_summary_of_nothing_is_nothing() -> None:
    assert Summary.of([]) is None
    assert Summary.of([3.0, 1.0, 2.0]) == Summary(
        count=3, mean=2.0, p50=2.0, p95=pytest.approx(2.9), p99=pytest.approx(2.98)
    )


def test_a_summary_takes_ends_only_from_requests_that_ran_to_their_end() -> None:
    whole, aborted = one_request(12.0, 13.0), one_request(12.0, 20.0, finish=FinishReason.ABORT)
    summary = latency_summary([whole, aborted])

    assert summary.e2e == Summary.of([3.0])
    assert summary.tpot == Summary.of([1.0])
    assert summary.ttft == Summary.of([2.0, 2.0])


def test_throughput_is_all_tokens_from_the_first_arrival_to_the_last_token() -> None:
    summary = latency_summary([one_request(12.0, 13.0), one_request(12.0, 14.0, 20.0)])

    assert summary.tokens_per_second == pytest.approx(5 / 10.0)


def test_a_summary_of_no_requests_says_nothing() -> None:
    summary = latency_summary([])

    assert (summary.ttft, summary.itl, summary.tokens_per_second) == (None, None, None)


# Waste


def without_a_cache(prompt: int, steps: int, request_id: str = "a") -> list[AnyRecord]:
    """Every step runs the whole sequence again, one token longer each time."""
    return [make.step(index, [make.row(request_id, prompt + index)]) for index in range(steps)]


def test_four_tokens_and_22_steps_without_a_cache_cost_17_times_the_pairs() -> None:
    timeline = timelines_of([make.arrived("a"), *without_a_cache(4, 22)])[0]
    shape = make.header().shape
    assert shape is not None

    assert timeline.work.attention_pairs == 5_511
    assert timeline.work.cached_pairs == 319
    assert timeline.work.multiply_adds(shape) == (50_789_376, 2_939_904)


def test_without_a_cache_all_but_the_last_length_is_recomputed() -> None:
    timeline = timelines_of([make.arrived("a"), *without_a_cache(4, 22)])[0]

    assert timeline.work.tokens_computed == 319
    assert timeline.work.recomputed_tokens == 319 - 25


def test_with_a_cache_nothing_is_recomputed_and_decode_costs_the_length() -> None:
    decode = [make.step(n, [make.row("a", 1, 3 + n)]) for n in range(1, 22)]
    timeline = timelines_of([make.arrived("a"), make.step(0, [make.row("a", 4)]), *decode])[0]

    assert timeline.work.recomputed_tokens == 0
    assert timeline.work.cached_pairs == 319
    assert timeline.work.attention_pairs == 4 * 4 + (319 - 4)


def test_what_prefix_caching_found_is_not_recomputed() -> None:
    hit = make.step(0, [make.row("a", 5, 16, Phase.PREFILL, num_cached_tokens=16)])

    assert timelines_of([make.arrived("a"), hit])[0].work.recomputed_tokens == 0


def test_preemption_by_recompute_recomputes_what_was_there() -> None:
    records = [
        make.arrived("a"),
        make.step(0, [make.row("a", 10)]),
        make.step(1, [], preempted_ids=["a"]),
        make.step(2, [make.row("a", 11)]),
    ]

    assert timelines_of(records)[0].work.recomputed_tokens == 10


def test_finished_rows_of_a_static_batch_are_counted_apart() -> None:
    kept = [make.step(n, [make.row("a", 1, 4 + n, Phase.FINISHED)]) for n in range(1, 4)]
    work = timelines_of([make.arrived("a"), make.step(0, [make.row("a", 4)]), *kept])[0].work

    assert work.finished_rows == 3
    assert work.tokens_computed == 7
    assert work.recomputed_tokens == 0


def test_totals_add_up_all_requests_and_the_padding() -> None:
    reducer = TimelineReducer()
    for record in (
        make.arrived("a"),
        make.arrived("b"),
        make.step(0, [make.row("a", 4), make.row("b", 2)], num_padding_tokens=2),
        make.step(1, [make.row("a", 5), make.row("b", 3)], num_padding_tokens=2),
    ):
        reducer.apply(record)
    reducer.forget("a")

    assert reducer.total.attention_pairs == 16 + 4 + 25 + 9
    assert reducer.total.recomputed_tokens == 4 + 2
    assert reducer.padding_tokens == 4
    assert list(reducer.timelines) == ["b"]


def test_padding_that_is_not_exposed_stays_unknown() -> None:
    reducer = TimelineReducer()
    reducer.apply(make.step(0, [], num_padding_tokens=None))

    assert reducer.padding_tokens is None


def test_slots_reserved_are_set_against_slots_filled() -> None:
    first = KVDelta(reserved_slots={"a": 64}, filled_slots={"a": 4})
    later = KVDelta(filled_slots={"a": 9})
    records = [make.arrived("a"), make.step(0, [], kv=first), make.step(1, [], kv=later), make.finished("a")]
    timeline = timelines_of(records)[0]

    assert (timeline.reserved_slots, timeline.filled_slots) == (64, 9)


def test_blocks_count_as_reserved_slots() -> None:
    header = make.header(engine=EngineConfig(block_size=16))
    grow = make.step(0, [], kv=KVDelta(taken={"a": [3, 1]}, filled_slots={"a": 20}))
    end = make.step(1, [], kv=KVDelta(given_back={"a": [3, 1]}))
    timeline = timelines_of([header, make.arrived("a"), grow, end])[0]

    assert (timeline.reserved_slots, timeline.filled_slots) == (32, 20)


def test_slots_are_unknown_where_the_engine_does_not_tell() -> None:
    timeline = timelines_of([make.arrived("a"), make.step(0, [make.row("a", 4)])])[0]

    assert (timeline.reserved_slots, timeline.filled_slots) == (None, None)


def test_rows_of_requests_from_before_the_trace_are_counted_in_the_totals() -> None:
    reducer = TimelineReducer()
    reducer.apply(make.step(0, [make.row("gone", 1, 9)]))

    assert reducer.timelines == {}
    assert reducer.total.attention_pairs == 10
