"""Recordings are found by name; a bad file is refused with what is wrong with it."""

from __future__ import annotations

import gzip
import logging
import os
from pathlib import Path

import pytest

from backends.records import encode_record
from backends.shelf import Shelf, UnknownRecording, read_recordings
from tests import factories as make

MIB, GIB = 2**20, 2**30
TRACE = encode_record(make.header()) + b"\n"


def file_in(folder: Path, name: str, content: bytes = TRACE) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def test_the_operators_recordings_come_first_and_open_the_page(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    for name in ("a.jsonl", "mine.jsonl"):
        file_in(shipped, name)
    shelf = Shelf(read_recordings([file_in(tmp_path, "mine.jsonl")]), folder=shipped)

    assert shelf.opens_with == "mine"
    assert [recording.name for recording in shelf.all()] == ["mine", "a"]
    assert shelf.get("mine").path == tmp_path / "mine.jsonl"
    assert [recording.is_shipped for recording in shelf.all()] == [False, True]


@pytest.mark.parametrize("name", ["../secret", "..", "", "a/../b", "%2e%2e", "a\0b", "a.jsonl"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    file_in(tmp_path, "secret.jsonl")
    (tmp_path / "shelf").mkdir()
    file_in(tmp_path / "shelf", "a.jsonl")
    with pytest.raises(UnknownRecording):
        Shelf(folder=tmp_path / "shelf").get(name)


def test_a_broken_file_among_the_shipped_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file_in(tmp_path, "bad.jsonl", b"{}\n")
    file_in(tmp_path, "good.jsonl")
    with caplog.at_level(logging.ERROR):
        assert [recording.name for recording in Shelf(folder=tmp_path).all()] == ["good"]
    assert "bad.jsonl: line 1" in caplog.text


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for path, problem in [
        (file_in(tmp_path, "notes.txt"), "is called something.jsonl"),
        (str(tmp_path / "nowhere.jsonl"), "no such file"),
        (str(tmp_path / "pipe.jsonl"), "no such file"),
        (str(tmp_path / "folder.jsonl"), "no such file"),
        (file_in(tmp_path, "bad.jsonl", b'{"type":"step"}\n'), "line 1: "),
        (file_in(tmp_path, "empty.jsonl", b""), "line 1: the trace is empty"),
    ]:
        with pytest.raises(ValueError, match=problem):
            read_recordings([path])


def test_two_gigabytes_are_refused_by_their_size_and_what_becomes_them_before_it_is_parsed(
    tmp_path: Path,
) -> None:
    sparse = file_in(tmp_path, "sparse.jsonl")
    os.truncate(sparse, 2 * GIB)
    with pytest.raises(ValueError, match="has 2,147,483,648 bytes; 536,870,912 is the limit"):
        read_recordings([sparse])

    tokens = (encode_record(make.token()) + b"\n") * 14_000
    packed = file_in(tmp_path, "packed.jsonl.gz", gzip.compress(TRACE) + gzip.compress(tokens) * 2200)
    assert len(tokens) * 2200 > 2 * GIB
    assert os.stat(packed).st_size < 8 * MIB
    with pytest.raises(ValueError, match="unpacked it has more than 536,870,912 bytes"):
        read_recordings([packed])


def test_two_recordings_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two recordings are called 'run'"):
        read_recordings([file_in(tmp_path, "run.jsonl"), file_in(tmp_path, "run.jsonl.gz")])
