"""``python app.py`` as its users start it: a process of its own on a free port."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.listening import until_it_answers

ROOT = Path(__file__).resolve().parents[1]
START_PATIENCE = 120
"""Seconds for the server to answer; its engines come up behind it."""
END_PATIENCE = 30


@contextmanager
def app_server(*options: str, **environment: str) -> Iterator[str]:
    """Its address, ``http://127.0.0.1:…``, once it answers there; it is ended whatever happens."""
    with app_process(*options, **environment) as (_, address):
        yield address


@contextmanager
def app_process(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process too, for those who look at what it costs."""
    command = [sys.executable, "app.py", "--port", "0", *options]
    env = os.environ | environment
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("Servescope: "), said
            address = said.removeprefix("Servescope: ").strip().removesuffix("/")
            until_it_answers(process, f"{address}/health", START_PATIENCE)
            yield process, address
        finally:
            process.terminate()
            try:
                process.wait(END_PATIENCE)
            finally:
                process.kill()
