"""``python app.py`` on a bad day: a full disk, a second server beside it, Ctrl-C at a bad moment."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from backends.trace import file_lines, read_trace
from tests.test_app import PATIENCE, serving, wait_for_state
from tests.tiny_models import make_tiny_model

MARKER = " xylophone"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A tiny model, in a cache that all servers here share."""
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), "llama", tokenizer="words")
    cache = tmp_path_factory.mktemp("cache")
    limits = ("--max-model-len", "64", "--num-blocks", "32", "--block-size", "4")
    return "--model", str(folder), "--cache-dir", str(cache), "--backends", "paged,naive", *limits


class Log(threading.Thread):
    """What a server writes to stderr, read as it comes, so that it never waits for us."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._server = server
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        assert self._server.stderr is not None
        self.lines += self._server.stderr

    def events(self, name: str) -> list[dict[str, Any]]:
        """Once the server has ended."""
        self.join(PATIENCE)
        told = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in told if line.get("event") == name]


def ask(address: str, backend: str = "paged", max_tokens: int = 4) -> httpx.Response:
    body = {"prompt": f"{MARKER} a b", "max_tokens": max_tokens}
    return httpx.post(f"{address}/generate?backend={backend}", json=body, timeout=PATIENCE)


def health(address: str) -> dict[str, Any]:
    return dict(httpx.get(f"{address}/health", timeout=PATIENCE).json())


def until(done: Any) -> None:
    """Nothing tells from outside when a server has written a file."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_full_disk_is_told_and_stops_nothing_and_the_log_has_no_text(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Full: the system refuses this process any file that is larger than what it has written."""
    log_format = {"SERVESCOPE_LOG_FORMAT": "json"}
    with serving(*options, "--record", str(tmp_path), **log_format) as (server, address):
        log = Log(server)
        assert ask(address).status_code == 200
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("paged-*")))
        assert health(address)["status"] == "ok"
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        answers = [ask(address)]
        until(lambda: health(address)["problems"])
        answers.append(ask(address))
        told, metrics = health(address), httpx.get(f"{address}/metrics").text
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0

    assert [answer.status_code for answer in answers] == [200, 200]
    assert told["status"] == "degraded"
    [problem] = told["problems"]
    assert (problem["backend"], problem["code"]) == ("paged", "recording_failed")
    assert told["backends"]["paged"]["record_problem"] == problem["message"] == "File too large"
    assert 'servescope_problems{backend="paged"} 1.0' in metrics
    (path,) = tmp_path.glob("paged-*")
    assert len(read_trace(file_lines(path)).records) > 0, "what was written before can be read"
    ids = [answer.json()["sequence_id"] for answer in answers]
    for event in ("arrived", "finished"):
        assert [line["request_id"] for line in log.events(event)][-2:] == ids
    assert MARKER.strip() not in "".join(log.lines)


def test_two_servers_share_model_kernels_and_the_folder_of_records(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Started at the same moment, with nothing prepared but the weights' source."""
    folders = ("--record", str(tmp_path / "records"), "--cache-dir", str(tmp_path / "cache"))
    with serving(*options, *folders) as (one, first), serving(*options, *folders) as (two, second):
        for address in (first, second):
            wait_for_state(address, "paged", "ready")
            assert ask(address).status_code == 200
            assert health(address)["status"] == "ok"
        for server in (one, two):
            server.send_signal(signal.SIGINT)
        assert [server.wait(PATIENCE) for server in (one, two)] == [0, 0]
    traces = [read_trace(file_lines(path)) for path in (tmp_path / "records").glob("paged-*")]
    arrived = [[r for r in trace.records if type(r).__name__ == "RequestArrived"] for trace in traces]
    assert [len(requests) for requests in arrived] == [1, 1], "each server has a file of its own"


@contextmanager
def starting(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server whose engine is coming up."""
    with serving(*options) as (server, address):
        wait_for_state(address, "paged", "starting")
        yield server, address


@contextmanager
def busy(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in the middle of a stream that somebody reads, and of one that nobody does."""
    with serving(*options) as (server, address):
        wait_for_state(address, "paged", "ready")
        httpx.post(f"{address}/control/paged/speed", json={"step_delay": 0.5})
        body = {"prompt": " a b", "max_tokens": 50}
        url = f"{address}/generate_stream?backend=paged"
        with httpx.stream("POST", url, json=body, timeout=PATIENCE) as stream:
            next(stream.iter_lines())
            yield server, address


@pytest.mark.parametrize("stage", [starting, busy])
def test_ctrl_c_ends_a_server_and_all_its_processes_whatever_it_does(
    options: tuple[str, ...], stage: Any
) -> None:
    with stage(*options) as (server, _):
        children = psutil.Process(server.pid).children(recursive=True)
        began = time.monotonic()
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE)
        print(f"{stage.__name__}: gone after {time.monotonic() - began:.2f} s")
    assert alive == []
