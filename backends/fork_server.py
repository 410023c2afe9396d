"""Processes that have what they compute with from their first moment.

A fork server (``multiprocessing.forkserver``) imports some modules once; every process that is forked
from it has them already. torch and transformers take seconds to import and vLLM a dozen, and engines
are started often: by experiments, by races, after a crash. Linux only: elsewhere a process imports for
itself.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess

_servers: dict[tuple[str, ...], forkserver.ForkServer] = {}
_preparing = threading.Lock()
_asked = threading.local()


def start_context(preload: Sequence[str]) -> ForkServerContext | SpawnContext:
    """How processes that want these modules are started."""
    if preload and sys.platform == "linux":
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def start(process: BaseProcess, preload: Sequence[str]) -> None:
    """Start a process of ``start_context(preload)``. Blocks while the modules are imported for the
    first time."""
    if preload and sys.platform == "linux":
        _asked.server = _running_server(tuple(preload))
    process.start()


def _running_server(preload: tuple[str, ...]) -> forkserver.ForkServer:
    """One for each set of modules, so that no engine waits for the imports of another.

    A fork server does not get ``sys.path`` from here before Python 3.13 (CPython issue 117378), and
    would pass over modules that it does not find without a word.
    """
    with _preparing:
        if not _servers:
            atexit.register(_kill_all)
        server = _servers.setdefault(preload, forkserver.ForkServer())
        server.set_forkserver_preload(list(preload))
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        try:
            server.ensure_running()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
    return server


def _kill_all() -> None:
    """This process ends: a server that still imports would only notice afterwards."""
    for server in _servers.values():
        pid: int | None = server._forkserver_pid  # type: ignore[attr-defined]
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_connect_to_the_usual = forkserver.connect_to_new_process


def _connect(fds: Sequence[int]) -> tuple[int, int]:
    """multiprocessing knows one fork server in a program; this asks the one that ``start`` chose."""
    server = getattr(_asked, "server", None)
    return _connect_to_the_usual(fds) if server is None else server.connect_to_new_process(fds)


forkserver.connect_to_new_process = _connect
