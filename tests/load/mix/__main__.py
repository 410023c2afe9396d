"""Everything at once, at random, and then the count: ``python -m tests.load.mix --minutes 5 --seed 1``.

Chats, streams and whole answers of both APIs, clients that leave at any moment, pages that are closed,
workloads, and an operator who pauses, steps, restarts and kills, over naive, generate, paged, remote (a
server of the tests) and, with ``--vllm``, vLLM. What clients do follows from the seed; how it interleaves
does not. Prints one line of figures; exit code 1 and the problems where something does not add up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from backends import logs
from tests.load.mix.mix import run_mix


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.load.mix", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--visitors", type=int, default=12, help="clients that ask one thing after the other")
    parser.add_argument("--vllm", action="store_true", help="vLLM too, which takes seconds to come back")
    options = parser.parse_args()
    logs.configure("error", "logfmt")
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(
            run_mix(
                Path(folder),
                options.minutes * 60,
                options.seed,
                num_visitors=options.visitors,
                with_vllm=options.vllm,
            )
        )
    print(json.dumps(outcome.figures))
    print(*outcome.problems, sep="\n", file=sys.stderr)
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
