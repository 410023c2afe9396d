"""A gzip file that grows and is whole after every write, so that a reader needs no mercy.

    ┌────────┬──────────────────────────────┬──────────────┐
    │ header │ deflate blocks, each flushed │ end, CRC, n  │
    └────────┴──────────────────────────────┴──────────────┘
                                            ▲ the next write begins here, and brings its own end

A process that is killed leaves what the last write left. One stream, not many behind each other:
browsers read only the first of several.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from pathlib import Path

HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Deflate, no name, no time, an unknown system (RFC 1952)."""
LAST_BLOCK = b"\x03\x00"
"""An empty block that says it is the last."""


class GzipLog:
    """One file, made anew. Raises ``OSError``; a write that fails leaves the file as it was, and the
    log can take no more after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        """Uncompressed."""
        self._file = path.open("xb", buffering=0)
        self._compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        self._crc = 0
        self._end = len(HEADER)
        try:
            self._put(0, HEADER + self._tail())
        except OSError:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        """Append; whoever reads the file after this call finds it."""
        blocks = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        before = (self._crc, self.num_bytes)
        self._crc = zlib.crc32(data, self._crc)
        self.num_bytes += len(data)
        try:
            self._put(self._end, blocks + self._tail())
        except OSError:
            self._crc, self.num_bytes = before
            with suppress(OSError):  # that place was ours before, full disk or not
                self._put(self._end, self._tail())
                self._file.truncate()
            raise
        self._end += len(blocks)

    def close(self) -> None:
        self._file.close()

    def _tail(self) -> bytes:
        length = self.num_bytes & 0xFFFFFFFF
        return LAST_BLOCK + self._crc.to_bytes(4, "little") + length.to_bytes(4, "little")

    def _put(self, offset: int, content: bytes) -> None:
        self._file.seek(offset)
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) :]
