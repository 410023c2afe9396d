"""Everything at once, for a moment; ``python -m tests.load.mix --minutes 5`` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

from tests.load.mix.mix import run_mix

SECONDS = 10


async def test_after_a_mix_of_everything_nothing_is_left_and_all_counts_add_up(tmp_path: Path) -> None:
    outcome = await run_mix(tmp_path, SECONDS, seed=random.randrange(1_000_000))

    assert outcome.problems == []
    assert outcome.figures["sent"] > 10
    assert all(engine["tokens"] for engine in outcome.figures["engines"].values()), outcome.figures
