"""``vllm serve`` with SmolLM2 on free loopback ports, several at once, gone with whoever started them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backends.models import prepare_model
from backends.settings import Settings
from tests.listening import until_it_answers

MODEL = "smollm2"
"""As the servers call it."""
MAX_MODEL_LEN = 256
PATIENCE = 240
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # half the time to start
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def vllm_servers(count: int) -> Iterator[list[str]]:
    """Their addresses, once all of them answer."""
    path = asyncio.run(prepare_model("smollm2", Settings().cache_dir, lambda fraction, sentence: None)).path
    with ExitStack() as stack:
        started = [stack.enter_context(_process(str(path))) for _ in range(count)]
        for process, address in started:
            until_it_answers(process, f"{address}/v1/models", PATIENCE)
        yield [address for _, address in started]


@contextmanager
def _process(path: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    options += ["--enforce-eager", "--dtype", "float32", "--block-size", "32"]
    options += ["--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory-bytes", "50000000"]
    main = Path(__file__).with_name("vllm_serve_main.py")
    with subprocess.Popen(
        [sys.executable, str(main), "serve", path, *options],
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE,  # held open by this process alone: see there
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
