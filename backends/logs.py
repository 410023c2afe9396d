"""The server's log: one line an event, logfmt or JSON, on stderr.

    time=2026-08-01T10:15:00.123Z level=info event=finished backend=paged request_id=… reason=length e2e_s=1.9

Events carry ids, counts, durations and reasons; never a word of a prompt or of an answer.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["logfmt", "json"]

PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f]+")
"""What logfmt need not quote."""


def say(logger: logging.Logger, level: int, event: str, **fields: Any) -> None:
    """Log an event. Fields that are ``None`` are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    logger.log(level, event, extra={"fields": known})


class EventFormatter(logging.Formatter):
    """Any record as one line: an event with its fields, or what a library says as ``message``."""

    def __init__(self, layout: Format) -> None:
        super().__init__()
        self._layout = layout

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            line |= {"logger": record.name, "message": record.getMessage()}
        else:
            line |= {"event": record.msg} | fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if self._layout == "json":
            return json.dumps(line, ensure_ascii=False, default=str)
        return " ".join(f"{name}={_logfmt(value)}" for name, value in line.items())


def configure(level: str, layout: Format) -> None:
    """Everything that this process logs, uvicorn's and libraries' lines included, from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter(layout))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries
    logging.getLogger("backends").setLevel(level.upper())


def _logfmt(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
