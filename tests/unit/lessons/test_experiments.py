"""What experiments measure, recomputed here from the records as they are written to a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.lesson import read_lesson, slugs
from tests.unit.lessons.experiment_harness import Laboratory


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
    assert max(sum(bar) for bar in got.outcome.picture.bars) <= 8


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
