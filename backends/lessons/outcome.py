"""What an experiment hands back: values with their unit and how they are known, and a picture of them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from backends.records import Exposure


class Unit(StrEnum):
    """What a value counts; the page has the words."""

    BLOCKS = "blocks"
    BYTES = "bytes"
    COUNT = "count"
    """Of what the value's name says."""
    FRAMES = "frames"
    GIB = "gib"
    LINES = "lines"
    PAIRS = "pairs"
    """Query × key pairs."""
    REQUESTS = "requests"
    ROWS = "rows"
    SECONDS = "seconds"
    SHARE = "share"
    """A fraction, shown in percent."""
    SLOTS = "slots"
    STEPS = "steps"
    TIMES = "times"
    """As much as something else, so many times."""
    TOKENS = "tokens"
    TOKENS_PER_SECOND = "rate"
    CHOICE = "choice"
    """One of the prediction's choices."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One value."""

    name: str
    """As the lesson's front matter knows it."""
    value: int | float | str
    unit: Unit
    exposure: Exposure


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Bars: one a step or a request, each of as many parts as there are series."""

    series: tuple[str, ...]
    bars: list[list[float]]
    unit: Unit
    stacked: bool = False
    """The parts of a bar lie on each other, since they are parts of a whole; else side by side."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    measured: list[Measured]
    picture: Picture | None = None

    def value(self, name: str) -> int | float | str:
        """The value of that name."""
        [found] = (measured.value for measured in self.measured if measured.name == name)
        return found


def measured(name: str, value: int | float | str, unit: Unit) -> Measured:
    """Read off a record."""
    return Measured(name=name, value=value, unit=unit, exposure=Exposure.MEASURED)


def derived(name: str, value: int | float | str, unit: Unit) -> Measured:
    """Computed from records; the lesson says how."""
    return Measured(name=name, value=value, unit=unit, exposure=Exposure.DERIVED)
