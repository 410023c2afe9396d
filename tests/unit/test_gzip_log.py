"""The file is whole after every write, and also after one that fails."""

from __future__ import annotations

import gzip
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.gzip_log import GzipLog


@contextmanager
def no_file_larger_than(num_bytes: int) -> Iterator[None]:
    """As on a disk that is full: a write gets so far, and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_it_can_be_read_after_every_write_though_it_was_never_closed(tmp_path: Path) -> None:
    log = GzipLog(tmp_path / "log.gz")
    written = b""
    assert gzip.decompress(log.path.read_bytes()) == b""
    for part in (b"one\n", b"", b"two\n" * 50_000, b"three\n"):
        log.write(part)
        written += part
        content = log.path.read_bytes()
        assert gzip.decompress(content) == written
        assert log.num_bytes == len(written)
    assert content.count(b"\x1f\x8b\x08") == 1, "one stream"
    assert len(content) < len(written) / 100
    log.close()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    log = GzipLog(tmp_path / "log.gz")
    log.write(b"kept\n")
    size = log.path.stat().st_size
    with no_file_larger_than(size + 10), pytest.raises(OSError, match="large"):
        log.write(bytes(range(256)) * 10)
    assert gzip.decompress(log.path.read_bytes()) == b"kept\n"
    assert log.num_bytes == 5
    log.close()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_text("mine")
    with pytest.raises(FileExistsError):
        GzipLog(tmp_path / "log.gz")
