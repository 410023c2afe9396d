"""A worker that is killed, at whatever stage: whoever was in flight is told at once, and it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from backends import lifecycle
from backends.base import ControlAction
from backends.errors import EngineDied
from backends.generate.engine import GenerateEngine
from backends.hosted import HostedEngine
from backends.naive.engine import NaiveEngine
from backends.paged.engine import PagedEngine
from backends.records import FinishReason
from backends.settings import Settings
from tests import stages
from tests.engine_harness import PATIENCE, Client, Watch, request, started
from tests.stages import engine_states, kill_at, serves, worker_of
from tests.tiny_models import make_tiny_model

NUM_BLOCKS = 32
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[NaiveEngine, GenerateEngine, PagedEngine]
)
async def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HostedEngine]:
    folder = make_tiny_model(tmp_path_factory.mktemp("llama"), tokenizer="words")
    settings = Settings(
        model=str(folder),
        cache_dir=tmp_path_factory.mktemp("cache"),
        max_model_len=64,
        num_blocks=NUM_BLOCKS,
        block_size=4,
    )
    async with started(request.param(settings)) as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine(running: HostedEngine, monkeypatch: pytest.MonkeyPatch) -> HostedEngine:
    """Up and unpaused. Deaths are forgotten at once: these are more than a worker may have in a row."""
    monkeypatch.setattr(lifecycle, "SETTLED_AFTER", 0.0)
    monkeypatch.setattr(lifecycle, "FIRST_BACK_OFF", 0.01)
    await running.start()
    await running.control(ControlAction.RESUME)
    return running


@pytest.mark.parametrize("stage", stages.ALL)
async def test_whoever_is_in_flight_hears_that_the_worker_was_killed_and_the_next_is_served(
    engine: HostedEngine, stage: stages.Stage
) -> None:
    await kill_at(stage, engine, worker_of(engine), "SIGKILL")
    pool_is_whole(engine)


async def test_a_worker_that_is_killed_while_it_starts_is_started_again_for_whoever_waits(
    engine: HostedEngine,
) -> None:
    old = engine._process
    watch = Watch(engine)
    await engine.control(ControlAction.RESTART)
    client = Client(engine, request("waits"))
    await watch.until(lambda: any(record.progress is not None for record in engine_states(watch)))
    assert engine._process is not old
    worker_of(engine).kill()
    async with asyncio.timeout(PATIENCE):
        await client.task
    assert client.error is None
    assert len(client.tokens) == 5
    assert any("SIGKILL" in (record.reason or "") for record in engine_states(watch))


async def test_whoever_comes_after_the_death_and_before_it_is_known_hears_of_it_too(
    engine: HostedEngine,
) -> None:
    """The worker is dead, and all who were in flight have been told; the event loop has not."""
    process, watch = engine._process, Watch(engine)
    assert process is not None
    late = Client(engine, request("late"))  # it asks at the loop's next turn
    worker_of(engine).kill()
    process._reader.join(PATIENCE)  # meanwhile the loop stands still
    async with asyncio.timeout(PATIENCE):
        await late.task
    assert isinstance(late.error, EngineDied)
    assert watch.finished() == {"late": FinishReason.ERROR}
    await serves(engine)
    pool_is_whole(engine)


def pool_is_whole(engine: HostedEngine) -> None:
    if isinstance(engine, PagedEngine):
        assert engine.recorder.head().snapshot.num_free_blocks == NUM_BLOCKS
