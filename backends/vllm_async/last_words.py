"""What an EngineCore process died of, for the worker to tell.

``AsyncLLM`` says only that its EngineCore is dead, and to look at the log. This handler is on vLLM's
logger before EngineCore is forked, and so in that process as well; it keeps the exception in a file.
"""

from __future__ import annotations

import logging
from pathlib import Path

ENGINE_CORE_LOGGER = "vllm.v1.engine.core"
MOST_CHARACTERS = 500


class LastWords(logging.Handler):
    """Writes the last exception that was logged to ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.path.write_text(f"{type(error).__name__}: {error}"[:MOST_CHARACTERS], encoding="utf-8")

    def listen(self) -> None:
        logging.getLogger(ENGINE_CORE_LOGGER).addHandler(self)

    def read(self) -> str | None:
        """``None``: it said nothing, as when it is killed."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
