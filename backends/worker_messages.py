"""What an engine whose queue lives in its worker says to it, and hears back.

The server's side is ``queued_engine.py``; workers are ``generate/model_worker.py`` and
``paged/worker.py``.
"""

from __future__ import annotations

import msgspec

from backends.base import SamplingParams
from backends.records import AnyRecord, FinishReason


class AddRequest(msgspec.Struct, frozen=True, kw_only=True, tag="add"):
    request_id: str
    prompt_ids: list[int]
    sampling: SamplingParams
    mode: str | None = None
    cache_salt: str | None = None


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    request_id: str


class SetGate(msgspec.Struct, frozen=True, kw_only=True, tag="gate"):
    paused: bool
    step_delay: float


class StepOnce(msgspec.Struct, frozen=True, tag="step_once"):
    """Let one step through a closed gate."""

    time: float
    """When it was asked for: a worker that has been idle since then has nothing to do for it."""


ToWorker = AddRequest | AbortRequest | SetGate | StepOnce


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token, when it is told."""

    request_id: str
    index: int
    step_id: int | None
    token_id: int
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A request will get no more tokens."""

    request_id: str
    reason: FinishReason
    text: str = ""
    """Held back as the possible start of a stop string that then never came."""
    refusal: str | None = None
    """Why the engine did not take the request; the reason is then ``error``."""


class WorkerUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What happened: a step, or an abort between two steps."""

    records: list[AnyRecord] = []
    """For the recorder as they are: a step, a change of the KV cache."""
    tokens: list[Token] = []
    ended: list[Ended] = []
    num_waiting: int | None = 0
    """Requests in the worker's queue; ``None`` where the engine does not tell."""
    queues: dict[str, int] = {}
    """Depths of other queues of the worker, by name."""
