"""Figures out of ``/metrics``: those that are there, of this model, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.records import EngineGauges
from backends.remote.prometheus import read_gauges


def gauges(text: str, model: str = "m") -> EngineGauges | None:
    return read_gauges(text, model, time=1.0, server=1)


def test_engines_of_one_server_are_summed_and_their_shares_averaged() -> None:
    told = gauges(
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 4.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25\n'
    )
    assert told == EngineGauges(time=1.0, source="/metrics", server=1, num_running=7, kv_cache_usage=0.375)


def test_other_models_do_not_count() -> None:
    told = gauges(
        'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_running{model_name="x"} 9\n'
    )
    assert told is not None
    assert told.num_running == 3


def test_a_server_of_one_model_means_that_one_by_whatever_name() -> None:
    told = gauges('vllm:num_requests_running{model_name="m"} 3\n', model="an-alias")
    assert told is not None
    assert told.num_running == 3


def test_among_several_models_none_is_guessed() -> None:
    text = 'vllm:num_requests_running{model_name="a"} 3\nvllm:num_requests_running{model_name="b"} 9\n'
    assert gauges(text) is None


def test_metadata_and_a_thousand_other_lines_do_not_matter() -> None:
    others = "".join(f'vllm:x_bucket{{le="{edge}",model_name="m"}} 1.0\n' for edge in range(1000))
    told = gauges(f"# HELP vllm:num_requests_waiting Waiting.\n{others}vllm:num_requests_waiting 5\n# EOF\n")
    assert told is not None
    assert (told.num_waiting, told.num_running) == (5, None)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running +Inf",
        "vllm:num_requests_running -1",
        "vllm:num_requests_running 1e300",
        "vllm:kv_cache_usage_perc 1.5",
        "another_server:requests 5",
        "",
    ],
)
def test_what_cannot_be_true_is_not_told(line: str) -> None:
    assert gauges(line + "\n") is None


@given(st.text())
def test_whatever_follows_the_name_of_a_figure_nothing_worse_happens_than_a_value_error(rest: str) -> None:
    with suppress(ValueError):
        gauges(f"vllm:num_requests_running{rest}\n")


def test_what_is_no_prometheus_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        gauges("vllm:num_requests_running x")
