"""What the engine and its worker say to each other."""

from __future__ import annotations

import msgspec

from backends.base import SamplingParams
from backends.models import PreparedModel
from backends.records import FinishReason, StepRecord


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is started with."""

    model: PreparedModel
    device: str
    max_model_len: int
    batch_size: int
    first_step_id: int
    """Steps are counted on over the lives of several workers."""


class AddRequest(msgspec.Struct, frozen=True, kw_only=True, tag="add"):
    request_id: str
    prompt_ids: list[int]
    sampling: SamplingParams
    static: bool
    """Wait for a static batch, instead of running alone."""


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    request_id: str


class SetGate(msgspec.Struct, frozen=True, kw_only=True, tag="gate"):
    paused: bool
    step_delay: float


class StepOnce(msgspec.Struct, frozen=True, tag="step_once"):
    """Let one step through a closed gate."""


ToWorker = AddRequest | AbortRequest | SetGate | StepOnce


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token. In a static batch it is told when the whole batch is done."""

    request_id: str
    index: int
    step_id: int
    token_id: int
    text: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A request will get no more tokens."""

    request_id: str
    reason: FinishReason
    text: str = ""
    """Held back as the possible start of a stop string that then never came."""


class StepDone(msgspec.Struct, frozen=True, kw_only=True, tag="step_done"):
    """One forward pass inside ``model.generate()``, and what it led to."""

    record: StepRecord
    tokens: list[Token]
    ended: list[Ended]
    num_waiting: int


FromWorker = StepDone | Ended
