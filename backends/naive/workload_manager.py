"""Who is in the batch: two pools, one refilled at every step, one run until all of it is done.

::

    streaming (continuous batching)          whole answers (static batching)
    incoming_streaming_queue: D E            incoming_queue: D E
              │ a place is free?                       │ is the batch empty?
    active_streaming_sequences: A B C        active_sequences: A B C
    step k     A B C        A ends           step k     A B C        A ends
    step k+1   D B C        D is in          step k+1   A B C        A waits for B and C
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from backends.base import TokenChunk
from backends.records import FinishReason
from backends.streams import RequestStream


class EmittedToken(NamedTuple):
    """A token and the step that computed it."""

    step_id: int
    chunk: TokenChunk


@dataclass(eq=False)
class Sequence:
    """One request and what has been generated for it. The text is the state: there is no cache."""

    stream: RequestStream
    text: str
    """Prompt and all generated text that is whole."""
    pending_ids: list[int] = field(default_factory=list)
    """Generated tokens that are not yet a whole character, and so cannot be part of ``text``."""
    num_generated: int = 0
    num_steps: int = 0
    undelivered: list[EmittedToken] = field(default_factory=list)
    """Tokens that whoever asked has not been given: a whole answer's, until its batch is done."""
    finish_reason: FinishReason | None = None
    aborted: bool = False
    """Nobody waits for it any more; a step may be under way with it."""
    left: bool = False
    """It is out of its batch: never changes while that is in a step."""

    @property
    def done(self) -> bool:
        return self.finish_reason is not None

    @property
    def sequence_id(self) -> str:
        return self.stream.request.request_id

    def take_undelivered(self) -> list[EmittedToken]:
        tokens, self.undelivered = self.undelivered, []
        return tokens


class WorkloadManager:
    """Both pools behind one lock. ``batch_size`` is the number of places in each."""

    def __init__(self, batch_size: int = 4) -> None:
        if batch_size < 1:
            raise ValueError(f"Got {batch_size = } but a batch has at least 1 place")
        self.batch_size = batch_size
        self.incoming_queue: deque[Sequence] = deque()
        self.active_sequences: list[Sequence] = []
        self.incoming_streaming_queue: deque[Sequence] = deque()
        self.active_streaming_sequences: list[Sequence] = []
        self._lock = threading.Lock()
        self._work_came = threading.Condition(self._lock)
        self._stepping: set[bool] = set()
        """Pools (by ``is_streaming``) whose batch is with the worker right now."""
        self._closed = False

    def add_request(self, sequence: Sequence) -> None:
        """Queue a request for a whole answer."""
        self._add(self.incoming_queue, sequence)

    def add_streaming_request(self, sequence: Sequence) -> None:
        """Queue a request for a stream."""
        self._add(self.incoming_streaming_queue, sequence)

    def get_next_batch(self, is_streaming: bool = False) -> list[Sequence]:
        """The batch of the next step. The caller says ``end_step`` when the step is over.

        Streaming: free places are filled from the queue. Whole answers: the batch stays as it is
        until all of it is done, and only then is a new one made.
        """
        with self._lock:
            incoming, active = self._pool(is_streaming)
            if is_streaming or not active:
                while incoming and len(active) < self.batch_size:
                    active.append(incoming.popleft())
            if active:
                self._stepping.add(is_streaming)
            return list(active)

    def end_step(self, is_streaming: bool) -> tuple[list[Sequence], list[Sequence]]:
        """The step is over. Returns those that leave the batch done, and those aborted meanwhile.

        A stream leaves as soon as it is done; a whole answer waits for the rest of its batch.
        """
        with self._lock:
            self._stepping.discard(is_streaming)
            _, active = self._pool(is_streaming)
            aborted = [sequence for sequence in active if sequence.aborted]
            wanted = [sequence for sequence in active if not sequence.aborted]
            may_leave = is_streaming or all(sequence.done for sequence in wanted)
            leaving = [sequence for sequence in wanted if sequence.done and may_leave]
            active[:] = [sequence for sequence in wanted if sequence not in leaving]
            for sequence in aborted:
                sequence.left = True
            return leaving, aborted

    def drop(self, sequence_id: str) -> bool:
        """Take a sequence out. False: the worker has it; ``end_step`` will return it as aborted."""
        with self._lock:
            for is_streaming in (True, False):
                incoming, active = self._pool(is_streaming)
                for sequence in list(incoming):
                    if sequence.sequence_id == sequence_id:
                        incoming.remove(sequence)
                        return True
                for sequence in list(active):
                    if sequence.sequence_id == sequence_id:
                        sequence.aborted = True
                        if is_streaming in self._stepping:
                            return False
                        sequence.left = True
                        active.remove(sequence)
                        return True
            return True

    def waiting_ids(self, is_streaming: bool) -> list[str]:
        """Those in the queue of a pool, in order."""
        with self._lock:
            return [sequence.sequence_id for sequence in self._pool(is_streaming)[0]]

    def depths(self) -> dict[str, int]:
        """Queue name → sequences in it."""
        return {
            "incoming_queue": len(self.incoming_queue),
            "incoming_streaming_queue": len(self.incoming_streaming_queue),
        }

    def has_work(self, is_streaming: bool) -> bool:
        """Is there anything to compute in this pool? Takes no lock: the gate asks inside its own."""
        incoming, active = self._pool(is_streaming)
        return bool(incoming or active)

    def wait_for_work(self, is_streaming: bool) -> bool:
        """Block until a pool has something to compute. False once closed."""
        with self._work_came:
            self._work_came.wait_for(lambda: self._closed or self.has_work(is_streaming))
            return not self._closed

    def close(self) -> None:
        """Send both loops home."""
        with self._work_came:
            self._closed = True
            self._work_came.notify_all()

    def _add(self, queue: deque[Sequence], sequence: Sequence) -> None:
        with self._work_came:
            queue.append(sequence)
            self._work_came.notify_all()

    def _pool(self, is_streaming: bool) -> tuple[deque[Sequence], list[Sequence]]:
        if is_streaming:
            return self.incoming_streaming_queue, self.active_streaming_sequences
        return self.incoming_queue, self.active_sequences
