"""What the preparing child says, one JSON object a line."""

from __future__ import annotations

import msgspec

from backends.models.describe import PreparedModel


class PrepareProgress(msgspec.Struct, frozen=True, tag="progress"):
    fraction: float
    sentence: str


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    model: PreparedModel


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    sentence: str


PrepareMessage = PrepareProgress | Prepared | Refused
