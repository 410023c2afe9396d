"""The same workload is the same requests; what it says of them holds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.workloads.workload import Arrivals, Workload, plan

workloads = st.builds(
    Workload,
    students=st.integers(1, 64),
    arrivals=st.sampled_from(Arrivals),
    window=st.floats(0, 120),
    prompt_words=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    shared_words=st.integers(0, 50),
    output_tokens=st.lists(st.integers(1, 300), min_size=1, max_size=5).map(tuple),
    seed=st.integers(0, 2**32 - 1),
)


@given(workloads)
def test_the_same_seed_gives_the_same_requests(workload: Workload) -> None:
    assert plan(workload) == plan(workload)


@given(workloads)
def test_a_plan_keeps_to_its_workload(workload: Workload) -> None:
    requests = plan(workload)
    fewest, most = sorted(workload.prompt_words)
    assert len(requests) == workload.students
    assert [request.at for request in requests] == sorted(request.at for request in requests)
    assert all(0 <= request.at <= workload.window for request in requests)
    for number, request in enumerate(requests):
        own = len(request.prompt.split()) - workload.shared_words - len(f"Student {number + 1} asks:".split())
        assert fewest <= own <= most
        assert request.max_tokens == workload.output_tokens[number % len(workload.output_tokens)]


@given(workloads)
def test_a_workload_survives_being_saved(workload: Workload) -> None:
    assert msgspec.json.decode(msgspec.json.encode(workload), type=Workload) == workload


def test_another_seed_gives_other_requests() -> None:
    assert plan(Workload(seed=1)) != plan(Workload(seed=2))


def test_students_who_come_evenly_have_even_gaps() -> None:
    times = [request.at for request in plan(Workload(students=4, arrivals=Arrivals.UNIFORM, window=8))]
    assert times == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "text",
    ['{"students": 0}', '{"students": 65}', '{"seed": -1}', '{"unknown": 1}', '{"output_tokens": [0]}'],
)
def test_what_is_no_workload_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Workload)
