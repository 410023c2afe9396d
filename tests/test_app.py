"""``python app.py`` as a person runs it: it serves, refuses bad values, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from app import server_config
from backends.records import encode_record
from backends.settings import Settings
from tests import factories as make
from tests.tiny_models import make_tiny_model

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0


@contextmanager
def app(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The program, ended whatever happens: leaving Popen's own block waits for it without a limit."""
    with subprocess.Popen(
        [sys.executable, "app.py", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server on a free port, and its address."""
    with app("--port", "0", *arguments, **environment) as server:
        assert server.stdout is not None
        match = next(filter(None, (re.search(r"http://\S+", line) for line in server.stdout)))
        yield server, match[0].rstrip("/")


def wait_for_state(address: str, backend: str, wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE
    state = None
    while state != wanted:
        assert time.monotonic() < deadline, f"{backend} is {state}, not {wanted}"
        try:
            state = httpx.get(f"{address}/health").json()["backends"][backend]["state"]
        except httpx.TransportError:  # not listening yet
            state = None
        time.sleep(0.1)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), "llama", tokenizer="words")
    return str(folder), str(tmp_path_factory.mktemp("cache"))


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with app("--port", port) as server:
            _, errors = server.communicate(timeout=PATIENCE)
    assert server.returncode == 2
    assert errors.strip() == f"app.py: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_bad_value_is_told_in_one_line() -> None:
    with app("--batch-size", "none") as server:
        _, errors = server.communicate(timeout=PATIENCE)
    assert server.returncode == 2
    assert errors.count("\n") == 1
    assert "--batch-size" in errors


def test_a_recording_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("nonsense")
    with app("--replay", str(tmp_path / "run.jsonl")) as server:
        _, errors = server.communicate(timeout=PATIENCE)
    assert server.returncode == 2
    assert errors.count("\n") == 1
    assert "--replay" in errors
    assert "run.jsonl: line 1: " in errors


def test_a_recording_is_shown_where_no_engine_could_run(tmp_path: Path) -> None:
    for module in ("torch", "transformers", "vllm", "accelerate"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not installed here')")
    recording = tmp_path / "run.jsonl"
    recording.write_bytes(encode_record(make.header()) + b"\n")
    with serving("--replay", str(recording), PYTHONPATH=str(tmp_path)) as (_, address):
        told = httpx.get(f"{address}/traces").json()
        assert (told["opens_with"], told["recordings"][0]["model"]) == ("run", "tiny")
        assert httpx.get(f"{address}/traces/run").content == recording.read_bytes()
        assert "Servescope" in httpx.get(address + "/").text
        assert httpx.get(f"{address}/health").json()["backends"] == {}
        refused = httpx.post(f"{address}/generate", json={"prompt": "a"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_backend")


@pytest.mark.parametrize(
    ("trusted", "seen"), [((), "10.0.0.9"), (("10.0.0.0/8",), "192.0.2.7"), (("10.0.0.1",), "10.0.0.9")]
)
async def test_a_proxy_names_the_visitor_only_where_the_operator_trusts_it(
    trusted: tuple[str, ...], seen: str
) -> None:
    clients = []

    async def note(scope: Any, *_: Any) -> None:
        clients.append(scope["client"][0])

    config = server_config(note, Settings(trusted_proxies=trusted))
    config.load()
    named = b"203.0.113.1, 192.0.2.7, 10.0.0.3"  # the first is what a stranger made up
    scope = {"type": "http", "client": ("10.0.0.9", 1), "headers": [(b"x-forwarded-for", named)]}
    await config.loaded_app(scope, None, None)
    assert clients == [seen]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_however_the_server_ends_no_process_outlives_it(
    tiny_model: tuple[str, str], how: signal.Signals
) -> None:
    model, cache = tiny_model
    with serving("--model", model, "--cache-dir", cache, "--max-model-len", "64") as (server, address):
        wait_for_state(address, "naive", "ready")
        children = psutil.Process(server.pid).children(recursive=True)
        assert children, "the engine runs in a process of its own"
        server.send_signal(how)
        server.wait(PATIENCE)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE)
    assert alive == []


def test_the_page_is_there_before_the_engine_is(tiny_model: tuple[str, str]) -> None:
    model, cache = tiny_model
    with serving("--model", model, "--cache-dir", cache, "--preload", "") as (_, address):
        wait_for_state(address, "naive", "idle")
        assert "Servescope" in httpx.get(address + "/").text


def test_a_request_waits_for_an_engine_that_has_not_started(tiny_model: tuple[str, str]) -> None:
    model, cache = tiny_model
    with serving("--model", model, "--cache-dir", cache, "--preload", "") as (_, address):
        wait_for_state(address, "naive", "idle")
        answer = httpx.post(
            f"{address}/generate", json={"prompt": " a b c", "max_tokens": 3}, timeout=PATIENCE
        )
    assert answer.status_code == 200
    assert len(answer.json()["generated_text"].split()) == 3


def test_a_server_that_others_can_reach_makes_a_key_and_prints_it(tiny_model: tuple[str, str]) -> None:
    model, cache = tiny_model
    with app("--model", model, "--cache-dir", cache, "--public", "--port", "0", "--preload", "") as server:
        assert server.stdout is not None
        key_line, address_line = server.stdout.readline(), server.stdout.readline()
        key, address = key_line.split()[-1], address_line.split()[-1].rstrip("/")
        wait_for_state(address, "naive", "idle")
        pause = f"{address}/control/naive/pause"
        assert httpx.post(pause).status_code == 401
        assert httpx.post(pause, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert httpx.post(pause, headers={"Authorization": f"Bearer {key}"}).status_code == 200
