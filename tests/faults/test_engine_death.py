"""A worker that is killed, at whatever stage: whoever was in flight is told at once, and it comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from backends import lifecycle
from backends.base import ControlAction
from backends.errors import EngineDied
from backends.generate.engine import GenerateEngine
from backends.hosted import HostedEngine
from backends.naive.engine import NaiveEngine
from backends.paged.engine import PagedEngine
from backends.records import EngineState, FinishReason, State
from backends.settings import Settings
from tests.engine_harness import PATIENCE, Client, Watch, held, press_step, request, started
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


def send_signal(engine: HostedEngine, how: signal.Signals) -> None:
    """To the worker, from outside, as an operator or the kernel would."""
    assert engine._process is not None
    assert engine._process.pid is not None
    os.kill(engine._process.pid, how)


# Stages: each leaves the worker there, and returns whoever is in flight


async def in_prefill(engine: HostedEngine) -> list[Client]:
    """Frozen before it has computed anything of them."""
    send_signal(engine, signal.SIGSTOP)
    watch = Watch(engine)
    clients = [Client(engine, request("A")), Client(engine, request("B", stream=False))]
    await watch.until(lambda: len(watch.arrived()) == 2)
    return clients


async def in_decode(engine: HostedEngine) -> list[Client]:
    """Frozen in the middle of a text."""
    clients = [Client(engine, request("A", max_tokens=50)), Client(engine, request("B", max_tokens=50))]
    await clients[0].receives(2)
    send_signal(engine, signal.SIGSTOP)
    return clients


async def paused(engine: HostedEngine) -> list[Client]:
    clients = await held(engine, request("A"), request("B", stream=False))
    await press_step(engine, Watch(engine))
    return clients


async def idle(engine: HostedEngine) -> list[Client]:
    return []


@pytest.mark.parametrize("stage", [in_prefill, in_decode, paused, idle])
async def test_whoever_is_in_flight_hears_that_the_worker_was_killed_and_the_next_is_served(
    engine: HostedEngine, stage: Callable[[HostedEngine], Awaitable[list[Client]]]
) -> None:
    clients = await stage(engine)
    was_paused = engine.gate.paused
    watch = Watch(engine)
    send_signal(engine, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(client.task for client in clients))
    assert [type(client.error) for client in clients] == [EngineDied] * len(clients)
    assert all("SIGKILL" in str(client.error) for client in clients)
    assert watch.finished() == {client.id: FinishReason.ERROR for client in clients}

    await watch.until(lambda: State.CRASHED in states(watch) and engine._lifecycle.is_up)
    assert engine.gate.paused == was_paused, "a pause outlives the process that it held"
    assert engine.state.state is (State.PAUSED if was_paused else State.READY)
    if was_paused:
        (held_again,) = await held(engine, request("held"))
        await press_step(engine, watch)
        assert len(watch.steps) == 1, "the new worker is held, as the old one was"
        await held_again.leave()
        await engine.control(ControlAction.RESUME)
    await serves(engine)
    ids = [step.step_id for step in watch.steps]
    assert ids == list(range(ids[0], ids[0] + len(ids))), "the next life counts on"


async def test_a_worker_that_is_killed_while_it_starts_is_started_again_for_whoever_waits(
    engine: HostedEngine,
) -> None:
    old = engine._process
    watch = Watch(engine)
    await engine.control(ControlAction.RESTART)
    client = Client(engine, request("waits"))
    await watch.until(lambda: any(record.progress is not None for record in engine_states(watch)))
    assert engine._process is not old
    send_signal(engine, signal.SIGKILL)
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
    send_signal(engine, signal.SIGKILL)
    process._reader.join(PATIENCE)  # meanwhile the loop stands still
    async with asyncio.timeout(PATIENCE):
        await late.task
    assert isinstance(late.error, EngineDied)
    assert watch.finished() == {"late": FinishReason.ERROR}
    await serves(engine)


def engine_states(watch: Watch) -> list[EngineState]:
    return [record for record in watch.records if isinstance(record, EngineState)]


def states(watch: Watch) -> list[State]:
    return [record.state for record in engine_states(watch)]


async def serves(engine: HostedEngine) -> None:
    """One request, after which nothing is left, and the pool is whole."""
    again = Client(engine, request("again"))
    async with asyncio.timeout(PATIENCE):
        await again.task
    assert again.error is None
    assert len(again.tokens) == 5
    assert not engine.has_work()
    snapshot = engine.recorder.head().snapshot
    assert snapshot.requests == []
    if isinstance(engine, PagedEngine):
        assert snapshot.num_free_blocks == NUM_BLOCKS
