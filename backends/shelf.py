"""The recordings that this server offers: those of ``assets/traces/`` and those of ``--replay``.

A name is a key in here. What a visitor asks for is looked up, and never becomes part of a path.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from backends.errors import ServescopeError
from backends.trace import Survey, TooLarge, TraceError, check_size, file_lines, is_gzipped, survey_trace

SUFFIXES = (".jsonl", ".jsonl.gz")
SHIPPED = Path(__file__).resolve().parents[1] / "assets" / "traces"

logger = logging.getLogger(__name__)


class UnknownRecording(ServescopeError):
    """No recording of that name."""

    status = 404
    code = "unknown_recording"


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A trace file, read through once."""

    name: str
    """The file's own, without its suffix: in addresses and in the list."""
    path: Path
    num_bytes: int
    is_gzipped: bool
    survey: Survey
    is_shipped: bool = False
    """With the project: its title is among the page's words."""


class Shelf:
    """Recordings by name, the operator's own first. Safe to use from any thread."""

    def __init__(self, chosen: Iterable[Recording] = (), folder: Path = SHIPPED) -> None:
        self._chosen = tuple(chosen)
        self._folder = folder
        self._lock = threading.Lock()
        self._all: dict[str, Recording] | None = None

    @property
    def opens_with(self) -> str | None:
        """The recording that the page shows at once: the first that the operator named."""
        return self._chosen[0].name if self._chosen else None

    def all(self) -> list[Recording]:
        """Every recording. The first call reads the shipped files, and so takes a moment."""
        return list(self._by_name().values())

    def get(self, name: str) -> Recording:
        """Raises ``UnknownRecording``."""
        recording = self._by_name().get(name)
        if recording is None or not recording.path.is_file():
            raise UnknownRecording(f"There is no recording {name!r} here.", field="name")
        return recording

    def _by_name(self) -> dict[str, Recording]:
        with self._lock:
            if self._all is None:
                named = {recording.name: recording for recording in self._chosen}
                shipped = {recording.name: recording for recording in _shipped(self._folder)}
                self._all = named | {name: shipped[name] for name in shipped if name not in named}
            return self._all


def read_recordings(paths: Iterable[str]) -> list[Recording]:
    """The files an operator named. Raises ``ValueError`` with the file and what is wrong with it."""
    recordings: dict[str, Recording] = {}
    for path in paths:
        recording = _read(Path(path))
        if recording.name in recordings:
            raise ValueError(f"{path}: two recordings are called {recording.name!r}")
        recordings[recording.name] = recording
    return list(recordings.values())


def _shipped(folder: Path) -> Iterable[Recording]:
    for path in sorted(folder.glob("*.jsonl*")):
        try:
            yield msgspec.structs.replace(_read(path), is_shipped=True)
        except ValueError as error:  # the others are still good
            logger.error("A recording is left out: %s", error)


def _read(path: Path) -> Recording:
    suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
    if suffix is None:
        raise ValueError(f"{path}: a recording is called something.jsonl or something.jsonl.gz")
    try:
        if not path.is_file():  # a pipe or a device would be waited for
            raise ValueError(f"{path}: there is no such file")
        check_size(path)
        return Recording(
            name=path.name.removesuffix(suffix),
            path=path,
            num_bytes=path.stat().st_size,
            is_gzipped=is_gzipped(path),
            survey=survey_trace(file_lines(path)),
        )
    except (TooLarge, TraceError) as error:
        raise ValueError(f"{path}: {error.message}") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
