"""The server's side: prepare a model in a child process, once for all who wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from backends.errors import EngineUnavailable
from backends.models.build import find_untouched
from backends.models.describe import PreparedModel
from backends.models.locate import BUNDLED, locate
from backends.models.messages import Prepared, PrepareMessage, PrepareProgress, Refused

OnProgress = Callable[[float, str], None]
"""Fraction and sentence, called on the event loop."""

REPOSITORY = Path(__file__).resolve().parents[2]

_decode = msgspec.json.Decoder(PrepareMessage).decode
_preparations: dict[tuple[int, str, Path], _Preparation] = {}
"""Those under way, by event loop, model and cache."""


async def prepare_model(spec: str, cache_dir: Path, on_progress: OnProgress) -> PreparedModel:
    """The model, ready to be loaded. At once if it was prepared before and is untouched.

    Concurrent callers share one child; when the last of them is cancelled, the child is killed, and
    it is gone when that caller's ``CancelledError`` is raised. Raises ``EngineUnavailable`` in plain words.
    """
    source = await asyncio.to_thread(locate, spec)
    model = await asyncio.to_thread(find_untouched, source, cache_dir)
    if model is not None:
        return model
    key = (id(asyncio.get_running_loop()), spec, cache_dir)
    if key not in _preparations or _preparations[key].abandoned:
        _preparations[key] = _Preparation(spec, cache_dir)
    preparation = _preparations[key]
    try:
        return await preparation.wait(on_progress)
    finally:
        if preparation.is_over and _preparations.get(key) is preparation:
            del _preparations[key]


class _Preparation:
    """One child and everybody who waits for it."""

    def __init__(self, spec: str, cache_dir: Path) -> None:
        self._listeners: list[OnProgress] = []
        self._last: PrepareProgress | None = None
        self._task = asyncio.create_task(_run_child(spec, cache_dir, self._tell))
        self.abandoned = False
        """Everybody who waited has gone: its child is being killed."""

    @property
    def is_over(self) -> bool:
        return self.abandoned or self._task.done()

    async def wait(self, on_progress: OnProgress) -> PreparedModel:
        self._listeners.append(on_progress)
        if self._last is not None:
            on_progress(self._last.fraction, self._last.sentence)
        try:
            return await asyncio.shield(self._task)
        finally:
            self._listeners.remove(on_progress)
            if not self._listeners and not self._task.done():
                self.abandoned = True
                self._task.cancel()
                await asyncio.wait([self._task])

    def _tell(self, progress: PrepareProgress) -> None:
        self._last = progress
        for listener in list(self._listeners):
            listener(progress.fraction, progress.sentence)


async def _run_child(spec: str, cache_dir: Path, tell: Callable[[PrepareProgress], None]) -> PreparedModel:
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *_command(spec, cache_dir),
            stdin=PIPE,  # held open: the child ends with us
            stdout=PIPE,
            stderr=errors,
            cwd=REPOSITORY,
            env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        try:
            return await _listen(process, spec, tell, errors)
        finally:
            await _end(process)


async def _listen(
    process: Process, spec: str, tell: Callable[[PrepareProgress], None], errors: IO[bytes]
) -> PreparedModel:
    assert process.stdout is not None
    async for line in process.stdout:
        match _decode(line):
            case PrepareProgress() as progress:
                tell(progress)
            case Prepared(model):
                return model
            case Refused(sentence):
                raise EngineUnavailable(sentence)
    code = await process.wait()
    raise EngineUnavailable(f"Preparing {spec} ended with exit code {code}: {_last_line(errors)}")


async def _end(process: Process) -> None:
    """Kill it if it still runs, and read its pipe to the end, so that nothing stays open."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing."


def _command(spec: str, cache_dir: Path) -> list[str]:
    """Paths are made absolute, for the child runs in another folder."""
    path = Path(spec).expanduser()
    model = str(path.absolute()) if spec != BUNDLED and path.exists() else spec
    return [sys.executable, "-m", "backends.models", model, "--cache-dir", str(cache_dir.absolute())]
