"""A tap on a scheduler that is none, in a process of its own: vLLM is heavy, and not made to be imported
into that of the tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import zmq

from backends.vllm_async.messages import NUM_TOLD, FromTap, TapConfig, ToTap

ROOT = Path(__file__).resolve().parents[2]


async def printed_beside_a_tap(code: str) -> str:
    """The last line that ``code`` prints, which has all names of this file."""
    whole = f"from tests.vllm.lone_tap import *\n{textwrap.dedent(code)}"
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", whole, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await done.communicate()
    assert done.returncode == 0, err.decode()
    return out.decode().splitlines()[-1]


class Worker:
    """The worker's end of the link, and the tap that has connected to it."""

    def __init__(self, scheduler: MagicMock) -> None:
        from backends.vllm_async.scheduler_tap import Tap  # brings vLLM

        self._folder = tempfile.TemporaryDirectory()
        address = f"ipc://{self._folder.name}/tap"
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.bind(address)
        self.tap = Tap(scheduler, TapConfig(address=address, first_step_id=0, exact_shape=True))
        self._name, self.hello = self._socket.recv_multipart()

    def tell(self, message: ToTap) -> None:
        self._socket.send_multipart([self._name, msgspec.msgpack.encode(message)])

    def hear(self) -> list[FromTap]:
        """All that the tap has said since."""
        heard = []
        while self._socket.poll(200):
            heard.append(msgspec.msgpack.decode(self._socket.recv_multipart()[1], type=FromTap))
        return heard


def scheduler() -> MagicMock:
    """As much of vLLM's as the tap reads."""
    spec = MagicMock()
    type(spec).__name__ = "FullAttentionSpec"
    limits = {"max_model_len": 8, "max_num_running_reqs": 2, "max_num_scheduled_tokens": 8}
    mock = MagicMock(block_size=4, **limits)
    mock.cache_config.num_gpu_blocks = 3
    mock.kv_cache_manager.block_pool.null_block.block_id = 0
    mock.kv_cache_config.kv_cache_groups = [SimpleNamespace(kv_cache_spec=spec)]
    mock.get_request_counts.return_value = (0, 1)
    return mock


def vllm_request(num_told: int = 0) -> Any:
    """One that was sent after so many messages to the tap."""
    sampling_params = SimpleNamespace(extra_args={NUM_TOLD: num_told})
    return SimpleNamespace(request_id="request-12345678", sampling_params=sampling_params)
