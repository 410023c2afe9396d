"""The child's end of an engine process, and what goes over its pipe to ``EngineProcess``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any

import msgspec

STOP = b""
"""What the parent sends instead of a message to end the child."""
BEAT_INTERVAL = 1.0
"""Seconds between two heartbeats of a child."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First words of a child. ``time`` proves that both processes read one clock."""

    pid: int
    time: float


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    fraction: float
    sentence: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    body: msgspec.Raw
    """What the engine says of itself; its type is the engine's own."""


class WorkerReady(msgspec.Struct, frozen=True, kw_only=True):
    """The usual body of ``Ready``: what a worker really runs on."""

    device: str
    dtype: str
    hardware: str
    versions: dict[str, str]
    num_blocks: int | None = None
    """Of its KV cache, where it has blocks."""
    kernels: str | None = None
    """What computes its model, where there is a choice."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The child cannot run at all, and trying again would not help."""

    sentence: str


class LastWords(msgspec.Struct, frozen=True, tag="last_words"):
    """The exception the child is about to die of."""

    sentence: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    time: float


class Message(msgspec.Struct, frozen=True, tag="message"):
    body: msgspec.Raw


Envelope = Hello | Progress | Ready | Failed | LastWords | Beat | Message

encode = msgspec.msgpack.Encoder().encode
decode_envelope = msgspec.msgpack.Decoder(Envelope).decode


class ParentGone(Exception):
    """The web process ended, or no longer wants this engine."""


class ChildChannel:
    """The child's end: made for the engine's main function by ``_child_main``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def progress(self, fraction: float, sentence: str) -> None:
        """How far the start is: shown on the page while it waits."""
        self._send(Progress(fraction, sentence))

    def ready(self, body: msgspec.Struct) -> None:
        """The engine can take work."""
        self._send(Ready(msgspec.Raw(encode(body))))

    def fail(self, sentence: str) -> None:
        """This engine cannot run here, for a reason that a restart would not mend."""
        self._send(Failed(sentence))

    def send(self, message: msgspec.Struct) -> None:
        """Thread-safe. Raises ``ParentGone``."""
        self._send(Message(msgspec.Raw(encode(message))))

    def receive(self) -> bytes:
        """The next message of the parent, as msgpack. Blocks; raises ``ParentGone``."""
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise ParentGone from error
        if message == STOP:
            raise ParentGone
        return message

    def poll(self, timeout: float = 0.0) -> bool:
        """Is there a message to receive (or has the parent gone)?"""
        return self._connection.poll(timeout)

    def _send(self, envelope: Envelope) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(encode(envelope))
        except OSError as error:
            raise ParentGone from error

    def say_last_words(self, error: Exception) -> None:
        self._send(LastWords(f"{type(error).__name__}: {error}"))

    def greet(self) -> None:
        self._send(Hello(os.getpid(), time.monotonic()))

    def beat(self) -> None:
        """Body of the beat thread: ends with the parent, and then ends the process with it."""
        while True:
            try:
                self._send(Beat(time.monotonic()))
            except ParentGone:
                os._exit(0)
            time.sleep(BEAT_INTERVAL)


def child_main(connection: Connection, main: str, config: Any) -> None:
    """Runs in the child: greet, keep beating, be the engine until the parent goes."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the parent's business
    channel = ChildChannel(connection)
    channel.greet()
    threading.Thread(target=channel.beat, name="beat", daemon=True).start()
    try:
        resolve_name(main)(channel, config)
    except ParentGone:
        return
    except Exception as error:
        channel.say_last_words(error)
        raise


def die_with_parent() -> None:
    """On Linux the kernel ends this process when its parent is killed, whatever it is doing.

    The parent of a child that came from a fork server is that server, which ends with the web process.
    Elsewhere, and where the parent was gone already, the beat thread notices within a second.
    """
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
