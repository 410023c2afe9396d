"""One engine in a process of its own: spawn, ready-ack, messages, heartbeat, death.

::

    web process                                   child process
    EngineProcess ──── one duplex pipe ────────── ChildChannel
      reader thread  ◄─ hello, progress, ready,     main thread: the engine
                        message, beat, failed       beat thread: one beat a second
      send()         ─► message                     receive(): messages, or ParentGone

A pipe and not ``multiprocessing.Queue``: a process killed while it waits in ``Queue.get`` leaves
the queue's lock taken for ever, and nobody can see that it died. A pipe whose other end is gone
ends at once, on both sides.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import msgspec

from backends import fork_server
from backends.engine_child import (
    BEAT_INTERVAL,
    STOP,
    Beat,
    Envelope,
    Failed,
    Hello,
    LastWords,
    Message,
    Progress,
    Ready,
    child_main,
    decode_envelope,
    encode,
)
from backends.errors import EngineDied, EngineUnavailable

BEAT_PATIENCE = 60.0
"""Seconds without a heartbeat after which a child is called hung and is killed. Loading weights
can hold the interpreter for many seconds on a slow machine."""
STOP_PATIENCE = 3.0
"""Seconds a child has to end by itself once it has been told to."""


Inbound = TypeVar("Inbound")
"""Type of the messages a child sends to its parent."""


class EngineProcess(Generic[Inbound]):
    """The parent's end: one life of one child. A restart makes a new ``EngineProcess``.

    ``main`` names the engine's main function, ``package.module:function``, called in the child as
    ``function(channel, config)``: a name, since importing it here would import what it computes
    with. ``on_message``, ``on_progress`` and ``on_death`` are called from the reader thread.
    ``on_death`` is called exactly once, with the reason, unless ``stop`` was called first.

    ``preload`` names modules that the child has from the start where there is a ``fork_server``, which
    makes every start but the first a quick one. Such a child may have children of its own.
    """

    def __init__(
        self,
        *,
        name: str,
        main: str,
        config: Any,
        message_type: Any,
        on_message: Callable[[Inbound], None],
        on_progress: Callable[[float, str], None],
        on_death: Callable[[EngineDied], None],
        preload: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.ready: Future[bytes] = Future()
        """The ready-ack as msgpack; ``EngineUnavailable`` or ``EngineDied`` if it never comes."""
        self.clock_offset_bound: float | None = None
        """Seconds by which the child's clock can differ from ours at most, from the handshake."""
        self._on_message = on_message
        self._on_progress = on_progress
        self._on_death = on_death
        self._decode_body = msgspec.msgpack.Decoder(message_type).decode
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._refusal: str | None = None
        self._last_words: str | None = None
        self._last_beat = time.monotonic()
        self._spawned_at = time.monotonic()
        self._preload = tuple(preload)
        if preload:
            atexit.register(self.kill)  # nothing else ends what is no daemon when this process exits
        context = fork_server.start_context(preload)
        self._connection, self._child_end = context.Pipe(duplex=True)
        self._process = context.Process(
            target=child_main, args=(self._child_end, main, config), name=name, daemon=not preload
        )
        self._reader = threading.Thread(target=self._live, name=f"{name}-reader", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def spawn(self) -> None:
        """Start the child; ``ready`` tells how that went."""
        self._reader.start()

    def send(self, message: msgspec.Struct) -> None:
        """Thread-safe. Raises ``EngineDied``."""
        self._send_bytes(encode(message))

    def kill(self) -> None:
        """End the child the hard way; ``on_death`` follows. Harmless before and after its life."""
        if self._process.pid is not None:
            self._process.kill()

    def stop(self) -> None:
        """Tell the child to go, wait for it, kill it if it does not. Blocks; idempotent. A child that is
        not there yet, since what it begins with is being imported, is not waited for: it ends at birth."""
        self._stopping.set()
        with contextlib.suppress(EngineDied):
            self._send_bytes(STOP)
        if self._reader.ident is None or self._process.pid is None:
            return
        self._reader.join(STOP_PATIENCE)
        if self._reader.is_alive():
            self.kill()
            self._reader.join()

    def _send_bytes(self, message: bytes) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(message)
        except (OSError, ValueError) as error:
            raise EngineDied(f"The {self.name} is gone.") from error

    def _live(self) -> None:
        """Body of the reader thread: the whole life of the child.

        The child is spawned here because ``die_with_parent`` ties it to the thread that spawned
        it, and this one lives as long as the child. The pipe is closed here alone, so that no
        other thread can be reading from a number that already means another file.
        """
        try:
            self._spawned_at = time.monotonic()
            fork_server.start(self._process, self._preload)
            if self._stopping.is_set():
                self.kill()
            self._child_end.close()  # or the pipe would not end with the child
            self._read()
        finally:
            self._mourn()

    def _read(self) -> None:
        while True:
            try:
                if self._connection.poll(BEAT_INTERVAL):
                    message = self._connection.recv_bytes()
                elif time.monotonic() - self._last_beat > BEAT_PATIENCE:
                    self.kill()
                    continue
                else:
                    continue
            except (EOFError, OSError):
                return
            self._handle(decode_envelope(message))

    def _handle(self, envelope: Envelope) -> None:
        match envelope:
            case Message(body):
                self._on_message(self._decode_body(body))
            case Beat():
                self._last_beat = time.monotonic()
            case Progress(fraction, sentence):
                self._on_progress(fraction, sentence)
            case Hello(_, child_time):
                self._check_clock(child_time)
            case Ready(body):
                if self.ready.set_running_or_notify_cancel():  # else: the start was given up
                    self.ready.set_result(bytes(body))
            case Failed(sentence):
                self._refusal = sentence
            case LastWords(sentence):
                self._last_words = sentence

    def _check_clock(self, child_time: float) -> None:
        """The child's stamp must lie between our two, or its times cannot stand beside ours."""
        now = time.monotonic()
        if not self._spawned_at <= child_time <= now:
            self._refusal = (
                f"The clock of the engine's process ({child_time:.3f}) is not this one's "
                f"({self._spawned_at:.3f} to {now:.3f}), so its times cannot be compared."
            )
            self.kill()
        self.clock_offset_bound = now - self._spawned_at

    def _mourn(self) -> None:
        """The child is gone, or as good as gone: say why, once."""
        atexit.unregister(self.kill)
        with self._sending:
            self._connection.close()
        if self._process.pid is not None:
            self._process.join(STOP_PATIENCE)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        reason = self._refusal or self._describe_end()
        if not self.ready.done():
            error_type = EngineUnavailable if self._refusal else EngineDied
            self.ready.set_exception(error_type(reason))
        if not self._stopping.is_set():
            self._on_death(EngineDied(reason))

    def _describe_end(self) -> str:
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"The {self.name} was ended by {signal.Signals(-code).name}."
        if self._last_words:
            return f"The {self.name} failed: {self._last_words}"
        return f"The {self.name} ended with exit code {code}."
