"""The server under load, measured: ``python -m tests.load PART … --minutes 5``.

    crossing   chats, streams and viewers at once: nothing lost, duplicated or crossed
    sharing    the engine's tokens per second with viewers and without, in turns
    watched    from record to pixel in a real browser, and the memory of both, looked at every ten seconds

What was seen goes into a JSON file; a fault is told and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.load.crossing import Sizes, everybody_at_once, result
from tests.load.log import read_log
from tests.load.picture import memory_picture
from tests.load.server import machine, running_server
from tests.load.sharing import in_turns
from tests.load.sharing import result as what_was_left
from tests.load.watched import memory_curves, watch
from tests.load.watched import result as what_was_seen


def parse_arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=list(PARTS), metavar="PART")
    parser.add_argument("--minutes", type=float, default=1.0, help="of load, for each part")
    parser.add_argument("--chats", type=int, default=50)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--turns", type=int, default=4, help="sharing: pairs of turns in these minutes")
    parser.add_argument("--picture", type=Path, help="watched: draws the memory into this SVG")
    parser.add_argument("--history", type=float, help="watched: MiB that the page keeps, if not what it does")
    parser.add_argument("--backend", default="paged")
    parser.add_argument("--result", type=Path, default=Path("load.json"), help="where the figures go")
    parser.add_argument("--server", default="", help="more options of app.py, as one word")
    return parser.parse_args()


def crossing(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = Sizes(arguments.chats, arguments.streams, arguments.viewers)
    with running_server(arguments.backend, folder, *arguments.server.split()) as server:
        outcome = asyncio.run(everybody_at_once(server, sizes, 60 * arguments.minutes))
    return result(outcome, read_log(folder, arguments.backend))  # the server has ended: its file is whole


def sharing(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    seconds = 60 * arguments.minutes / (2 * arguments.turns)
    with running_server(arguments.backend, folder, *arguments.server.split()) as server:
        turns = asyncio.run(
            in_turns(
                server,
                streams=arguments.streams,
                viewers=arguments.viewers,
                turns=arguments.turns,
                seconds=seconds,
            )
        )
    return what_was_left(turns, read_log(folder, arguments.backend))


def watched(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = Sizes(arguments.chats, arguments.streams, arguments.viewers)
    with running_server(arguments.backend, folder, *arguments.server.split()) as server:
        seen = asyncio.run(watch(server, sizes, 60 * arguments.minutes, history=arguments.history))
    if arguments.picture is not None:
        arguments.picture.write_text(memory_picture("Memory under load", memory_curves(seen)), "utf-8")
    return what_was_seen(seen, read_log(folder, arguments.backend))


PARTS = {"crossing": crossing, "sharing": sharing, "watched": watched}


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {"machine": machine(), "arguments": " ".join(sys.argv[1:])}
    for part in arguments.parts:
        with tempfile.TemporaryDirectory(prefix="servescope-load-") as folder:
            results[part] = PARTS[part](arguments, Path(folder))
        arguments.result.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({part: results[part]}, indent=1))
    return 1 if any(results[part]["faults"] for part in arguments.parts) else 0


if __name__ == "__main__":
    sys.exit(main())
