"""The vLLM worker's process: bring vLLM up, say so, and serve until the server goes.

When EngineCore dies this process dies with its reason, and the server starts another: from the fork
server, where vLLM is loaded already.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from pathlib import Path

import msgspec
from vllm.v1.engine.exceptions import EngineDeadError

from backends.engine_child import ChildChannel, ParentGone
from backends.records import EngineGauges
from backends.vllm_async.arguments import CannotRun
from backends.vllm_async.frontend import Frontend
from backends.vllm_async.last_words import LastWords
from backends.vllm_async.launch import launch
from backends.vllm_async.messages import ToVllm, WorkerConfig

logger = logging.getLogger(__name__)

NO_WORDS = "it ended without a word, as a process that is killed does."


class EngineCoreDied(Exception):
    """With the reason, where it could still tell one."""


def main(channel: ChildChannel, config: WorkerConfig) -> None:
    """Ends this process itself: vLLM's own clean-up takes seconds, and there is nothing to keep. The
    kernel ends EngineCore with it (``launch.py``)."""
    _stay_in(config.scratch)
    words = LastWords(Path(config.scratch) / "last_words")
    words.listen()
    try:
        asyncio.run(_serve(channel, config, words))
    except* CannotRun as refused:
        logger.error("vLLM cannot run", exc_info=refused)  # the page gets the sentence alone
        channel.fail(str(refused.exceptions[0]))
    except* EngineDeadError:
        channel.say_last_words(EngineCoreDied(words.read() or NO_WORDS))
    except* Exception as failed:
        logger.exception("The vLLM worker failed")
        channel.say_last_words(failed)
    os._exit(1)


def _stay_in(scratch: str) -> None:
    """vLLM's files and sockets go where the server removes them, even if all of this is killed."""
    os.environ["TMPDIR"] = os.environ["VLLM_RPC_BASE_PATH"] = scratch
    tempfile.tempdir = None  # read again when it is asked for


async def _serve(channel: ChildChannel, config: WorkerConfig, words: LastWords) -> None:
    inbox: asyncio.Queue[ToVllm] = asyncio.Queue()
    gauges: asyncio.Queue[EngineGauges] = asyncio.Queue()
    listening = (channel, asyncio.get_running_loop(), inbox)
    threading.Thread(target=_listen, args=listening, name="listen", daemon=True).start()
    launched = await launch(config, channel.progress, gauges.put_nowait, words)
    channel.ready(launched.ready)
    await Frontend(launched.engine, launched.tap, channel.send).run(inbox, gauges)


def _listen(channel: ChildChannel, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[ToVllm]) -> None:
    """Take messages, also while vLLM starts and holds the event loop."""
    decode = msgspec.msgpack.Decoder(ToVllm).decode
    try:
        while True:
            message = decode(channel.receive())
            loop.call_soon_threadsafe(inbox.put_nowait, message)
    except ParentGone:
        os._exit(0)
