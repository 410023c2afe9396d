"""Bytes of a response → server-sent events, with bounds: a server must not be able to fill memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST_EVENT = 256 * 1024
"""Bytes. A chunk with twenty log probabilities has about 2,000."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


class TooLong(ValueError):
    """An event without end."""


class Event(NamedTuple):
    name: str
    """``message`` where the server gives none."""
    data: bytes


class EventParser:
    """Feed it bytes as they come; it gives the events that are whole.

    An event that the connection's end cuts off is never given, as the standard says.
    """

    def __init__(self, longest: int = LONGEST_EVENT) -> None:
        self._longest = longest
        self._rest = b""
        """The beginning of a line."""
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """Raises ``TooLong``."""
        data = self._rest + data
        lines = _LINE_END.split(data)
        if data.endswith(b"\r"):  # a line feed may follow that belongs to it
            lines[-2:] = [lines[-2] + b"\r"]
        self._rest = lines.pop()
        for line in lines:
            if not line:
                yield from self._dispatch()
            else:
                self._take(line)
        if self._size + len(self._rest) > self._longest:
            raise TooLong

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value)
            self._data.append(value)
        elif field == b"event":
            self._name = value  # all else, comments to keep the connection among it, says nothing

    def _dispatch(self) -> Iterator[Event]:
        name, data = self._name, self._data
        self._name, self._data, self._size = b"", [], 0
        if data:
            yield Event(name.decode(errors="replace") or "message", b"\n".join(data))
