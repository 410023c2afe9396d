"""How fuzzing is run: the same inputs every time in the suite, others with ``FUZZ_EXAMPLES`` set."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def fuzzing(examples: int) -> settings:
    """``examples``: unless ``FUZZ_EXAMPLES`` says how many."""
    return settings(
        max_examples=int(os.environ.get("FUZZ_EXAMPLES", examples)),
        derandomize="FUZZ_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
