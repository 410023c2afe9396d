"""``python -m backends.models smollm2``: prepare a model now, with progress as JSON lines.

Exit code 0 and a last line ``prepared``, or 1 and a last line ``refused`` with the reason. Ends
when its standard input ends, if that is a pipe: a server that was killed leaves no such process.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec

from backends.errors import EngineUnavailable
from backends.models.build import build
from backends.models.locate import locate
from backends.models.messages import Prepared, PrepareMessage, PrepareProgress, Refused
from backends.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m backends.models", description="Prepare model weights.")
    parser.add_argument("model", help="hub id, local path, or smollm2 (works offline)")
    parser.add_argument("--cache-dir", type=Path, default=Settings.model_fields["cache_dir"].default)
    arguments = parser.parse_args()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    with _claim_stdout() as lines:
        return _prepare(arguments.model, arguments.cache_dir, lines)


def _prepare(spec: str, cache_dir: Path, lines: BinaryIO) -> int:
    def say(message: PrepareMessage) -> None:
        lines.write(msgspec.json.encode(message) + b"\n")
        lines.flush()

    last = PrepareProgress(0.0, "")

    def report(fraction: float, sentence: str) -> None:
        """Never backwards, and no line for less than a hundredth."""
        nonlocal last
        fraction = max(last.fraction, round(fraction, 2))
        if PrepareProgress(fraction, sentence) != last:
            last = PrepareProgress(fraction, sentence)
            say(last)

    try:
        say(Prepared(build(locate(spec), cache_dir, report)))
    except EngineUnavailable as error:
        say(Refused(error.message))
        return 1
    except OSError as error:
        say(Refused(f"Preparing {spec} in {cache_dir} failed: {error}"))
        return 1
    return 0


def _claim_stdout() -> BinaryIO:
    """Standard output for our lines alone; what libraries print goes to standard error."""
    lines = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return lines


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
