"""The way of one request's own tokens, as far as this server has stamps of it.

All of them are seconds on the monotonic clock, which is one for every process of this machine. What an
engine does not record stays ``None``.
"""

from __future__ import annotations

import time

import msgspec

from backends.base import Backend, TokenChunk
from backends.recorder import RecordsDropped
from backends.records import AnyRecord, StepRecord, TokenEmitted


class Stamps(msgspec.Struct, frozen=True, kw_only=True):
    """When one token was where."""

    index: int
    step_id: int | None
    step_start: float | None
    """The forward pass it came from began."""
    step_end: float | None
    emitted: float | None
    """The engine's own stamp (``TokenEmitted.time``)."""
    handed: float | None
    queued: float | None
    taken: float | None
    sent: float
    """Its frame was given to the connection."""


class Journey:
    """Follows one request through its engine's records, which are there before its chunks."""

    def __init__(self, engine: Backend, request_id: str) -> None:
        self._recorder = engine.recorder
        self._request_id = request_id
        self._version = engine.recorder.version
        self._steps: dict[int, StepRecord] = {}
        self._tokens: dict[int, TokenEmitted] = {}

    def stamps(self, chunk: TokenChunk) -> Stamps:
        """Of a chunk that is about to be sent."""
        self._read()
        token = self._tokens.pop(chunk.index, None)
        step_id = None if token is None else token.step_id
        step = None if step_id is None else self._steps.get(step_id)
        self._forget_before(step_id)
        way = chunk.way
        return Stamps(
            index=chunk.index,
            step_id=step_id,
            step_start=None if step is None else step.start_time,
            step_end=None if step is None else step.start_time + step.duration,
            emitted=None if token is None else token.time,
            handed=None if way is None else way.handed,
            queued=None if way is None else way.queued,
            taken=None if way is None else way.taken,
            sent=time.monotonic(),
        )

    def _read(self) -> None:
        try:
            entries = self._recorder.since(self._version)
        except RecordsDropped:  # this reader was slow; what is gone stays untold
            self._version = self._recorder.oldest_version
            entries = self._recorder.since(self._version)
        self._version += len(entries)
        for entry in entries:
            self._keep(entry.record)

    def _keep(self, record: AnyRecord) -> None:
        if isinstance(record, StepRecord):
            self._steps[record.step_id] = record
        elif isinstance(record, TokenEmitted) and record.request_id == self._request_id:
            self._tokens[record.index] = record

    def _forget_before(self, step_id: int | None) -> None:
        if step_id is not None:
            self._steps = {key: step for key, step in self._steps.items() if key >= step_id}
