"""Real vLLM with SmolLM2: one engine with a pool that fits on a screen, for a whole file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends.settings import Settings
from backends.vllm_async.engine import NOT_INSTALLED, VllmEngine, is_installed
from tests.engine_harness import started

POOL = {"num_blocks": 12, "block_size": 32}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these need vLLM; they share one event loop a file, as its engine lives on one."""
    for item in items:
        if "tests/vllm/" in item.path.as_posix():
            item.add_marker(pytest.mark.skipif(not is_installed(), reason=NOT_INSTALLED))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[VllmEngine]:
    async with started(VllmEngine(Settings(**POOL))) as up:
        yield up
