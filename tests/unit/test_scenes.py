"""What is shipped was really recorded: whole, small, with its hardware; a worse one never takes its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from backends.lessons.lesson import LANGUAGES
from backends.records import AnyRecord, RequestFinished, State, StepRecord, encode_record
from backends.shelf import SHIPPED, Shelf
from backends.trace import Trace, file_lines, read_trace
from scenes.catalogue import NAMES
from scenes.file import MOST_BYTES, NotShippable, check_lines, write_recording
from tests import factories as make

WORDS = SHIPPED.parent / "words"
MOST_BYTES_TOGETHER = 1_000_000


def path_of(name: str) -> Path:
    return SHIPPED / f"{name}.jsonl.gz"


def trace_of(name: str) -> Trace:
    return read_trace(file_lines(path_of(name)))


def steps_of(name: str) -> list[StepRecord]:
    return [record for record in trace_of(name).records if isinstance(record, StepRecord)]


def test_every_scene_is_shipped_and_nothing_else() -> None:
    shelf = Shelf()
    assert {recording.name for recording in shelf.all()} == set(NAMES)
    assert all(recording.is_shipped for recording in shelf.all())
    sizes = [recording.num_bytes for recording in shelf.all()]
    assert max(sizes) <= MOST_BYTES
    assert sum(sizes) <= MOST_BYTES_TOGETHER


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_whole_and_says_on_what_it_was_made(name: str) -> None:
    check_lines(b"".join(file_lines(path_of(name))))
    header = trace_of(name).header
    assert header.backend == name.partition("-")[0]
    assert "SmolLM2" in header.model
    assert "GiB" in header.hardware
    assert {"python", "torch", "transformers"} <= header.versions.keys()
    assert ("vllm" in header.versions) == (header.backend == "vllm")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_recording_has_a_title(lang: str) -> None:
    words = json.loads((WORDS / f"{lang}.json").read_text(encoding="utf-8"))
    titles = {key for key in words if key.startswith("traces.shipped.")}
    assert titles == {f"traces.shipped.{name}" for name in NAMES}
    shapes = re.findall(r"\[\d+, \d+\]", words["traces.shipped.naive-batch"])
    first, *_, last = steps_of("naive-batch")
    assert shapes == [str(list(step.input_shape or ())) for step in (first, last)]


@pytest.mark.parametrize("name", ["vllm-preemption", "paged-preemption"])
def test_where_blocks_run_out_somebody_is_preempted_and_comes_to_an_end(name: str) -> None:
    preempted = {request_id for step in steps_of(name) for request_id in step.preempted_ids}
    ended = [record for record in trace_of(name).records if isinstance(record, RequestFinished)]
    assert preempted <= {record.request_id for record in ended}
    assert preempted


def test_vllm_shares_the_block_that_all_prompts_begin_with() -> None:
    *_, asked = (step for step in steps_of("vllm-preemption") if len(step.rows) == len(step.admitted_ids) > 1)
    assert {row.num_cached_tokens for row in asked.rows} == {32}


def lines_of(*records: AnyRecord) -> bytes:
    return b"".join(encode_record(record) + b"\n" for record in (make.header(), *records))


def test_what_is_broken_empty_or_unfinished_takes_no_recordings_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"what lies there")
    good = b"".join(file_lines(path_of("naive-padding")))
    for lines, problem in [
        (good[:-9], "line"),
        (lines_of(), "no step"),
        (lines_of(make.arrived(), make.step(0, [make.row()])), "1 of 1 requests never ended"),
    ]:
        with pytest.raises(NotShippable, match=problem):
            write_recording(lines, path)
    assert path.read_bytes() == b"what lies there"

    stop = encode_record(make.state(State.IDLE)) + b"\n"
    assert write_recording(good + stop, path) == path.stat().st_size
    assert b"".join(file_lines(path)) == good, "the engine's stop is not shown"
    assert list(tmp_path.iterdir()) == [path]
