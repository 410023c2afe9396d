"""The stages of an engine's life at which a process of it can be killed, and what must hold afterwards.

Each stage freezes the victim there, and returns whoever is in flight.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import psutil

from backends.base import ControlAction
from backends.errors import EngineDied
from backends.hosted import HostedEngine
from backends.records import EngineState, FinishReason, State
from tests.engine_harness import PATIENCE, Client, Watch, held, request

Stage = Callable[[HostedEngine, psutil.Process], Awaitable[list[Client]]]


async def in_prefill(engine: HostedEngine, victim: psutil.Process) -> list[Client]:
    """Frozen before it has computed anything of them."""
    victim.send_signal(signal.SIGSTOP)
    watch = Watch(engine)
    clients = [Client(engine, request("A")), Client(engine, request("B", stream=False))]
    await watch.until(lambda: len(watch.arrived()) == 2)
    return clients


async def in_decode(engine: HostedEngine, victim: psutil.Process) -> list[Client]:
    """Frozen in the middle of a text."""
    long = {"max_tokens": 50, "ignore_eos": True}
    clients = [Client(engine, request("A", **long)), Client(engine, request("B", **long))]
    await clients[0].receives(2)
    victim.send_signal(signal.SIGSTOP)
    return clients


async def paused(engine: HostedEngine, victim: psutil.Process) -> list[Client]:
    clients = await held(engine, request("A"), request("B", stream=False))
    await one_step(engine)
    return clients


async def idle(engine: HostedEngine, victim: psutil.Process) -> list[Client]:
    return []


ALL: tuple[Stage, ...] = (in_prefill, in_decode, paused, idle)


def worker_of(engine: HostedEngine) -> psutil.Process:
    assert engine._process is not None
    return psutil.Process(engine._process.pid)


async def kill_at(stage: Stage, engine: HostedEngine, victim: psutil.Process, named: str) -> None:
    """From outside, as an operator or the kernel would: whoever is in flight hears of it, in a sentence in
    which ``named`` stands, the engine comes back as it was, and serves the next."""
    clients = await stage(engine, victim)
    was_paused = engine.gate.paused
    watch = Watch(engine)
    victim.kill()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(client.task for client in clients))
    assert [type(client.error) for client in clients] == [EngineDied] * len(clients)
    assert all(named in str(client.error) for client in clients)
    assert watch.finished() == {client.id: FinishReason.ERROR for client in clients}

    await watch.until(lambda: State.CRASHED in states(watch) and engine._lifecycle.is_up)
    assert engine.gate.paused == was_paused, "a pause outlives the process that it held"
    assert engine.state.state is (State.PAUSED if was_paused else State.READY)
    if was_paused:
        (held_again,) = await held(engine, request("held"))
        assert watch.steps == [], "the new worker is held, as the old one was"
        await one_step(engine)
        await held_again.leave()
        await engine.control(ControlAction.RESUME)
    await serves(engine)
    ids = [step.step_id for step in watch.steps]
    assert ids == list(range(ids[0], ids[0] + len(ids))), "the next life counts on"


async def one_step(engine: HostedEngine) -> None:
    watch = Watch(engine)
    await engine.control(ControlAction.STEP)
    await watch.until(lambda: watch.steps != [])
    assert len(watch.steps) == 1


async def serves(engine: HostedEngine) -> None:
    """One request, after which nothing is left."""
    again = Client(engine, request("again", ignore_eos=True))
    async with asyncio.timeout(PATIENCE):
        await again.task
    assert again.error is None
    assert len(again.tokens) == 5
    assert not engine.has_work()
    assert engine.recorder.head().snapshot.requests == []


def engine_states(watch: Watch) -> list[EngineState]:
    return [record for record in watch.records if isinstance(record, EngineState)]


def states(watch: Watch) -> list[State]:
    return [record.state for record in engine_states(watch)]
