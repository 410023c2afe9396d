"""What the worker is started with; what it says and hears is ``worker_messages``'."""

from __future__ import annotations

import msgspec

from backends.models import PreparedModel

SEQUENTIAL, STATIC = "sequential", "static"
"""One request at a time, or a batch of them that nobody joins or leaves."""


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    model: PreparedModel
    device: str
    max_model_len: int
    batch_size: int
    first_step_id: int
    """Steps are counted on over the lives of several workers."""
