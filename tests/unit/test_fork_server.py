"""Children that have heavy modules from their first moment, and still live and die as any child."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from backends import fork_server
from tests.unit.engine_children import tell_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each child imports for itself")


def begun_with(module: str, preload: tuple[str, ...]) -> tuple[bool, int]:
    """Whether a child had it from the start, and its parent's process id."""
    context = fork_server.start_context(preload)
    ours, theirs = context.Pipe()
    child = context.Process(target=tell_module, args=(theirs, module))
    fork_server.start(child, preload)
    theirs.close()
    told = ours.recv()
    child.join()
    assert child.exitcode == 0
    return told


def test_a_child_begins_with_the_modules_it_wants() -> None:
    assert begun_with("colorsys", ("colorsys",))[0]
    assert not begun_with("colorsys", ())[0]


def test_each_set_of_modules_is_imported_once_and_apart_from_the_others() -> None:
    (first, parent), (again, same), (other, another) = (
        begun_with("colorsys", ("colorsys",)),
        begun_with("colorsys", ("colorsys",)),
        begun_with("colorsys", ("wave",)),
    )
    assert (first, again, other) == (True, True, False)
    assert parent == same != another


def test_a_fork_server_that_was_killed_is_started_anew() -> None:
    _, parent = begun_with("colorsys", ("colorsys",))
    server = psutil.Process(parent)
    server.kill()
    while server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    found, other = begun_with("colorsys", ("colorsys",))
    assert found
    assert other != parent


def test_what_torch_workers_begin_with_leaves_a_gpu_alone() -> None:
    """CUDA that was touched before a fork cannot be used after it."""
    code = """
import torch
def touched(*_): raise AssertionError("CUDA was touched")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = torch.cuda._lazy_init = touched
import importlib
from backends.hosted import TORCH_MODULES
for name in TORCH_MODULES: importlib.import_module(name)
"""
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
