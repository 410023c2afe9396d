"""What experiments measure, recomputed here from the records as they are written to a trace."""

from __future__ import annotations

import ast
import statistics
from itertools import pairwise, takewhile
from pathlib import Path

import pytest

from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.lesson import read_lesson, slugs
from tests.unit.lessons.experiment_harness import Laboratory, Measurement, Record

ROOT = Path(__file__).resolve().parents[3]


async def test_the_shape_of_a_batch_grows_by_a_token_a_step(laboratory: Laboratory) -> None:
    got = await laboratory.measure("shape_of_a_batch")
    shapes = [step["input_shape"] for step in got.steps()]

    assert len(shapes) == got.values["steps"] == 22
    assert shapes[0] == [got.values["rows"], got.values["first_width"]]
    assert shapes[-1] == [2, got.values["last_width"]]
    assert got.values["last_width"] == got.values["first_width"] + 21
    assert got.values["tokens_made"] == len(got.of("token")) == 44
    assert got.values["tokens_computed"] == got.scheduled()
    assert got.outcome.picture is not None
    assert [bar[0] for bar in got.outcome.picture.bars] == [width for _, width in shapes]


async def test_without_a_cache_tokens_go_through_the_model_again_and_again(laboratory: Laboratory) -> None:
    got = await laboratory.measure("no_cache")
    [arrived] = got.of("arrived")
    lengths = range(arrived["num_prompt_tokens"], arrived["num_prompt_tokens"] + 40)

    assert got.values["tokens_naive"] == got.scheduled(0) == sum(lengths)
    assert got.values["pairs_naive"] == sum(length**2 for length in lengths)
    assert got.values["tokens_cached"] == got.scheduled(1) == lengths[-1]
    assert got.values["pairs_cached"] == lengths[0] ** 2 + sum(lengths[1:])
    assert got.values["pairs_ratio"] == got.values["pairs_naive"] / got.values["pairs_cached"]
    assert got.values["last_step_naive"] == got.steps(0)[-1]["duration"]
    assert got.values["last_step_cached"] == got.steps(1)[-1]["duration"]


async def test_the_prefix_cache_finds_whole_blocks_only(laboratory: Laboratory) -> None:
    got = await laboratory.measure("prefix_caching")
    first_rows = [step["rows"][0] for step in got.steps() if step["admitted_ids"]]

    assert [arrived["num_prompt_tokens"] for arrived in got.of("arrived")] == [48, 48, 48]
    assert [row["num_cached_tokens"] for row in first_rows] == [0, 32, 0]
    assert (got.values["second_cached"], got.values["third_cached"]) == (32, 0)
    assert got.values["second_computed"] == first_rows[1]["num_scheduled_tokens"] == 16
    assert got.values["third_computed"] == first_rows[2]["num_scheduled_tokens"] == 48
    first_tokens = [token["time"] for token in got.of("token") if token["index"] == 0]
    arrivals = [arrived["time"] for arrived in got.of("arrived")]
    assert got.values["first_ttft"] == first_tokens[0] - arrivals[0]
    assert got.values["second_ttft"] == first_tokens[1] - arrivals[1]


async def test_a_pool_that_runs_out_preempts_the_last_comer_and_all_end(laboratory: Laboratory) -> None:
    got = await laboratory.measure("running_out")
    preempted = [name for step in got.steps() for name in step["preempted_ids"]]
    latest = got.of("arrived")[-1]["request_id"]

    assert preempted
    assert set(preempted) == {latest}
    assert got.values["preemptions"] == len(preempted)
    assert got.values["preempted_requests"] == 1
    assert got.values["finished"] == len(got.of("finished")) == 3
    assert got.values["steps"] == len(got.steps()) > got.values["steps_alone"] == 44
    once = 3 * (20 + 44 - 1)
    assert got.values["tokens_computed"] == got.scheduled() == once + got.values["recomputed_tokens"]
    assert got.outcome.picture is not None
    assert [sum(bar) for bar in got.outcome.picture.bars] == [
        blocks_in_use(step["rows"], 16) for step in got.steps()
    ]


async def test_whoever_stands_in_the_queue_waits_for_all_in_front(laboratory: Laboratory) -> None:
    got = await laboratory.measure("one_at_a_time")
    names = [arrived["request_id"] for arrived in got.of("arrived")]
    alone, crowd = names[1], names[2:]
    e2e = {name: last_token(got, name) - arrival(got, name) for name in names}

    assert len(crowd) == 6
    assert got.values["alone"] == e2e[alone]
    assert got.values["crowd_first"] == min(e2e[name] for name in crowd)
    assert got.values["crowd_last"] == max(e2e[name] for name in crowd)
    assert got.values["last_ratio"] == max(e2e[name] for name in crowd) / e2e[alone]
    assert got.values["last_queue"] == max(first_step(got, name) - arrival(got, name) for name in crowd)
    assert {len(step["rows"]) for step in got.steps()} == {got.values["rows"]} == {1}
    order = [step["rows"][0]["request_id"] for step in got.steps() if step["finished_ids"]]
    assert sorted(order[-6:]) == sorted(crowd)


async def test_a_streamed_answer_costs_exactly_as_much_as_a_whole_one(laboratory: Laboratory) -> None:
    got = await laboratory.measure("streaming")
    _, streamed, whole = [arrived["request_id"] for arrived in got.of("arrived")]

    assert got.values["work"] == "same"
    assert got.values["streamed_computed"] == scheduled_for(got, streamed)
    assert got.values["whole_computed"] == scheduled_for(got, whole) == scheduled_for(got, streamed)
    for name, request in (("streamed", streamed), ("whole", whole)):
        times = [token["time"] for token in got.of("token") if token["request_id"] == request]
        assert len(times) == 24
        assert got.values[f"{name}_first"] == times[0] - arrival(got, request)
        assert got.values[f"{name}_last"] == times[-1] - arrival(got, request)
    last_step = next(step for step in got.steps() if step["finished_ids"] == [whole])
    assert got.values["whole_first"] >= last_step["start_time"] - arrival(got, whole)


async def test_the_worst_batch_is_nearly_all_padding(laboratory: Laboratory) -> None:
    got = await laboratory.measure("padding")
    first = got.steps()[0]
    lengths = [row["num_scheduled_tokens"] for row in first["rows"]]

    assert sorted(lengths) == [1] * 7 + [100]
    assert first["input_shape"] == [8, 100]
    assert got.values["padding"] == (100 - 1) * (8 - 1) == 693
    assert got.values["real"] == sum(lengths) == 107
    assert got.values["positions"] == 800
    assert got.values["share"] == 693 / 800


async def test_less_than_half_of_a_static_batch_is_useful(laboratory: Laboratory) -> None:
    got = await laboratory.measure("static_batch")
    rows = [row for step in got.steps(0) for row in step["rows"]]

    assert len(got.steps(0)) == got.values["steps"] == 256
    assert got.values["slots"] == len(rows) == 1024
    assert got.values["useful"] == sum(row["phase"] != "finished" for row in rows) == 480
    assert got.values["useful_share"] == 480 / 1024
    continuous = [row for step in got.steps(1) for row in step["rows"]]
    assert got.values["continuous_rows"] == got.values["continuous_useful"] == len(continuous) == 480


async def test_reserving_for_the_longest_leaves_most_of_it_empty(laboratory: Laboratory) -> None:
    got = await laboratory.measure("reserving")
    [prompt] = [arrived["num_prompt_tokens"] for arrived in got.of("arrived", 0)]
    reserved = [step["kv"] for step in got.steps(0)]
    taken = [blocks for step in got.steps(1) for blocks in step["kv"]["taken"].values()]
    filled = [slots for step in got.steps(1) for slots in step["kv"].get("filled_slots", {}).values()]

    assert prompt == 20
    [slots] = {slots for kv in reserved for slots in kv["reserved_slots"].values()}
    assert got.values["reserved_slots"] == slots == 1024
    assert got.values["reserved_filled"] == max(max(kv["filled_slots"].values()) for kv in reserved) == 51
    assert got.values["reserved_share"] == 51 / 1024
    assert got.values["blocks_slots"] == sum(map(len, taken)) * 16 == 64
    assert got.values["blocks_filled"] == max(filled)
    assert got.values["blocks_share"] == max(filled) / 64


async def test_a_long_prompt_in_one_step_is_in_the_gap_of_those_who_decode(laboratory: Laboratory) -> None:
    got = await laboratory.measure("long_prefill")
    for engine, name, budget in ((0, "whole", 512), (1, "chunked", 32)):
        *decoding, long_prompt = [arrived["request_id"] for arrived in got.of("arrived", engine)]
        gaps = [gap for request in decoding for gap in gaps_of(got, request, engine)]
        rows = [row for step in got.steps(engine) for row in step["rows"]]
        prefill = [row for row in rows if row["request_id"] == long_prompt and row["phase"] == "prefill"]
        most = max(sum(row["num_scheduled_tokens"] for row in step["rows"]) for step in got.steps(engine))

        assert len(decoding) == 2
        assert got.values[f"{name}_gap"] == max(gaps)
        assert got.values[f"{name}_steps"] == len(prefill)
        assert got.values[f"{name}_most"] == most <= budget
        assert sum(row["num_scheduled_tokens"] for row in prefill) == 400
        if name == "whole":
            assert got.values["usual_gap"] == statistics.median(gaps)
            assert got.values["whole_ratio"] == max(gaps) / statistics.median(gaps)
    assert got.values["whole_steps"] == 1
    assert got.values["chunked_steps"] > 400 / 32


async def test_a_client_that_waits_gets_batches_of_one(laboratory: Laboratory) -> None:
    got = await laboratory.measure("blocking_calls")
    sizes = [len(step["rows"]) for step in got.steps()]

    assert sizes == [1] * 64 + [4] * 16
    assert (got.values["waiting_steps"], got.values["at_once_steps"]) == (64, 16)
    assert (got.values["waiting_rows"], got.values["at_once_rows"]) == (1, 4)
    durations = [step["duration"] for step in got.steps()]
    assert got.values["waiting_time"] == pytest.approx(sum(durations[:64]))
    assert got.values["at_once_time"] == pytest.approx(sum(durations[64:]))


async def test_most_bytes_of_a_stream_are_not_text(laboratory: Laboratory) -> None:
    got = await laboratory.measure("server_sent_events")
    [name] = [arrived["request_id"] for arrived in got.of("arrived")]
    empty = len(f'data: {{"token": "", "sequence_id": "{name}"}}\n\n')

    assert got.values["frames"] == len(got.of("token")) == 12
    assert got.values["sent"] == 12 * empty + got.values["text"]
    assert got.values["ratio"] == got.values["sent"] / got.values["text"]
    assert got.values["parts"] == 12
    assert got.values["first_to_last"] > 0
    assert got.outcome.picture is not None
    assert {around for _, around in got.outcome.picture.bars} == {empty}


async def test_tokens_pile_up_for_the_reader_who_pauses_only(laboratory: Laboratory) -> None:
    got = await laboratory.measure("one_queue_per_request")
    slow, fast = [arrived["request_id"] for arrived in got.of("arrived", 0)]
    before = list(takewhile(lambda record: not ends(record, fast), got.records[0]))
    samples = [record["streams"] for record in before if record["type"] == "queues"]

    assert got.values["slow_depth"] == max(sample[slow] for sample in samples)
    assert got.values["fast_depth"] == max(sample[fast] for sample in samples)
    assert got.values["slow_depth"] > 15 > got.values["fast_depth"]
    for engine, name in ((1, "shared"), (2, "per_call")):
        reasons = [finished["reason"] for finished in got.of("finished", engine)]
        assert len(reasons) == got.values["asked"] == 6
        assert got.values[f"{name}_failed"] == reasons.count("error")
    assert got.values["per_call_failed"] == 0


async def test_a_second_engine_on_the_same_machine_serves_half_of_the_requests(
    laboratory: Laboratory,
) -> None:
    got = await laboratory.measure("replicas")
    warmed_up = [[arrived["request_id"] for arrived in got.of("arrived", engine)][1:] for engine in (0, 1)]
    alone, first_half, second_half = warmed_up[0][:8], warmed_up[0][8:], warmed_up[1]

    assert [len(alone), len(first_half), len(second_half)] == [8, 4, 4]
    one = span(got, {0: alone})
    two = span(got, {0: first_half, 1: second_half})
    assert (got.values["one_time"], got.values["two_time"]) == (one, two)
    assert got.values["one_rate"] == pytest.approx(8 * 24 / one)
    assert got.values["two_rate"] == pytest.approx(8 * 24 / two)
    assert got.values["ratio"] == pytest.approx(one / two)


async def test_the_memory_of_a_small_model_comes_to_the_known_numbers(laboratory: Laboratory) -> None:
    got = await laboratory.measure("why_so_much_memory")
    weights = 125_239_296 * 2
    cache = 0.9 * 24 * 2**30 - weights - 0.75 * 2**30

    assert got.values["per_token"] == 2 * 12 * 12 * 64 * 2 == 36_864
    assert got.values["reserved"] == pytest.approx(21.6)
    assert got.values["weights"] == pytest.approx(weights / 2**30)
    assert got.values["cache"] == pytest.approx(cache / 2**30)
    assert got.values["tokens"] == pytest.approx(cache / 36_864, abs=1)
    assert got.values["requests"] == int(cache / 36_864 / 16) // (2048 // 16)
    assert got.outcome.picture is not None
    assert sum(got.outcome.picture.bars[0]) == pytest.approx(24)


async def test_lines_are_counted_in_the_files_as_they_are(laboratory: Laboratory) -> None:
    got = await laboratory.measure("lines_of_code")
    counted = {path.stem: code_lines(path) for path in (ROOT / "backends" / "naive").glob("*.py")}

    assert got.values["naive"] == sum(counted.values())
    for name in ("workload_manager", "model_executor", "model_worker", "engine", "messages"):
        assert got.values[name] == counted[name]
    source = (ROOT / "backends/vllm_async/sync_mode.py").read_text(encoding="utf-8")
    [node] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert got.values["blocking_call"] == node.end_lineno - node.lineno + 1


def code_lines(path: Path) -> int:
    """Lines with code on them: what is left of the syntax tree without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings |= set(range(node.lineno, node.end_lineno + 1))
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(
        number not in docstrings and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(lines, start=1)
    )


def span(got: Measurement, requests: dict[int, list[str]]) -> float:
    """From the first arrival to the last token of these requests of these engines."""
    ends = [token_times(got, name, engine)[-1] for engine, names in requests.items() for name in names]
    begins = [arrival(got, name, engine) for engine, names in requests.items() for name in names]
    return max(ends) - min(begins)


# Read off the records


def arrival(got: Measurement, request: str, engine: int = 0) -> float:
    [time] = [record["time"] for record in got.of("arrived", engine) if record["request_id"] == request]
    return time


def ends(record: Record, request: str) -> bool:
    return record["type"] == "finished" and record["request_id"] == request


def token_times(got: Measurement, request: str, engine: int = 0) -> list[float]:
    return [record["time"] for record in got.of("token", engine) if record["request_id"] == request]


def last_token(got: Measurement, request: str) -> float:
    return token_times(got, request)[-1]


def gaps_of(got: Measurement, request: str, engine: int) -> list[float]:
    times = token_times(got, request, engine)
    return [later - earlier for earlier, later in pairwise(times)]


def first_step(got: Measurement, request: str) -> float:
    return next(
        step["start_time"]
        for step in got.steps()
        if any(row["request_id"] == request for row in step["rows"])
    )


def blocks_in_use(rows: list[Record], block_size: int) -> int:
    """That the rows of a step need for the tokens they have after it."""
    lengths = [row["num_computed_tokens"] + row["num_scheduled_tokens"] for row in rows]
    return sum(-(-length // block_size) for length in lengths)


def scheduled_for(got: Measurement, request: str) -> int:
    return sum(
        row["num_scheduled_tokens"]
        for step in got.steps()
        for row in step["rows"]
        if row["request_id"] == request
    )


# All of them


@pytest.mark.parametrize("slug", slugs())
async def test_a_lesson_has_words_for_what_its_experiment_measures(slug: str, laboratory: Laboratory) -> None:
    lesson = read_lesson(slug, "en")
    outcome = (await laboratory.measure(lesson.experiment)).outcome

    assert list(lesson.measured) == [measured.name for measured in outcome.measured]
    [compared] = [one for one in outcome.measured if one.name == lesson.prediction.compares]
    assert compared.unit == lesson.prediction.unit
    assert isinstance(compared.value, str) == bool(lesson.prediction.choices)
    assert (lesson.picture and list(lesson.picture.series)) == (
        outcome.picture and list(outcome.picture.series)
    )


def test_every_experiment_is_recomputed_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if f'measure("{name}")' not in source] == []
