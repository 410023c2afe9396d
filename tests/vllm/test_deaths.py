"""The worker or its EngineCore is killed, at whatever stage; so is the server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from backends import lifecycle
from backends.base import ControlAction
from backends.vllm_async.engine import VllmEngine
from tests import stages
from tests.engine_harness import PATIENCE, Client, Watch, request
from tests.stages import engine_states, kill_at, worker_of
from tests.vllm.processes import engine_core_of, engine_cores_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).resolve().parents[2]

Victim = Callable[[VllmEngine], psutil.Process]
WHAT_IS_SAID = {worker_of: "SIGKILL", engine_core_of: "EngineCore"}


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def unharmed(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up and unpaused. Deaths are forgotten at once: these are more than a worker may have in a row."""
    monkeypatch.setattr(lifecycle, "SETTLED_AFTER", 0.0)
    monkeypatch.setattr(lifecycle, "FIRST_BACK_OFF", 0.01)
    await engine.start()
    await engine.control(ControlAction.RESUME)


@pytest.mark.parametrize("stage", stages.ALL)
@pytest.mark.parametrize("victim", WHAT_IS_SAID)
async def test_whoever_is_in_flight_hears_of_the_death_and_the_next_is_served(
    engine: VllmEngine, victim: Victim, stage: stages.Stage
) -> None:
    family = [worker_of(engine), engine_core_of(engine)]
    await kill_at(stage, engine, victim(engine), WHAT_IS_SAID[victim])
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, PATIENCE)
    assert alive == [], "one takes the other along"


@pytest.mark.parametrize("victim", WHAT_IS_SAID)
async def test_what_is_killed_while_vllm_starts_is_started_again_for_whoever_waits(
    engine: VllmEngine, victim: Victim
) -> None:
    old, watch = engine._process, Watch(engine)
    await engine.control(ControlAction.RESTART)
    client = Client(engine, request("waits", ignore_eos=True))
    await watch.until(lambda: "EngineCore" in (engine_states(watch)[-1].reason or ""))
    assert engine._process is not old
    await asyncio.to_thread(_until_it_runs, engine)
    victim(engine).kill()
    async with asyncio.timeout(PATIENCE):
        await client.task
    assert client.error is None
    assert len(client.tokens) == 5
    assert any("Starting again" in (record.reason or "") for record in engine_states(watch))


def _until_it_runs(engine: VllmEngine) -> None:
    """Nothing tells that EngineCore has been forked."""
    deadline = time.monotonic() + PATIENCE
    while not engine_cores_of(worker_of(engine)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_no_process_outlives_a_killed_server() -> None:
    code = textwrap.dedent(
        """
        import asyncio
        from backends.settings import Settings
        from backends.vllm_async.engine import VllmEngine

        async def main():
            engine = VllmEngine(Settings(num_blocks=12, block_size=32))
            await engine.start()
            print("up", flush=True)
            await asyncio.sleep(1000)

        if __name__ == "__main__":
            asyncio.run(main())
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert await asyncio.to_thread(server.stdout.readline) == "up\n"
            family = psutil.Process(server.pid).children(recursive=True)
            assert engine_cores_of(psutil.Process(server.pid))
        finally:
            os.kill(server.pid, signal.SIGKILL)
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, PATIENCE)
    assert alive == []
