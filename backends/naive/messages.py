"""What the executor and the worker say to each other, over the request and the result queue."""

from __future__ import annotations

import msgspec


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker is started with."""

    model_path: str
    device: str
    eos_token_ids: list[int]


class SequenceInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that the worker gets of a sequence: text. It is tokenized anew at every step."""

    sequence_id: str
    text: str
    pending_ids: list[int]
    temperature: float


class ForwardBatch(msgspec.Struct, frozen=True):
    """One step for these sequences."""

    call_id: int
    sequences: list[SequenceInput]


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a step did for one row of the batch."""

    sequence_id: str
    num_tokens: int
    """Tokens that really went in for this row, padding not counted."""
    token_id: int
    is_eos: bool
    new_text: str
    """What a reader sees of the token: nothing while it is not a whole character, or is special."""
    text: str
    pending_ids: list[int]


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass, as the worker measured it."""

    call_id: int
    start_time: float
    duration: float
    input_shape: list[int]
    rows: list[RowResult]
    request_queue_depth: int
    """Calls that waited for the worker when the step began."""
