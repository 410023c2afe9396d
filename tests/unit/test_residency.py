"""Engines share a device's memory: who is idle makes way, and comes back when it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.base import BackendInfo, ControlAction
from backends.generate.engine import GenerateEngine
from backends.hosted import HostedEngine
from backends.naive.engine import NaiveEngine
from backends.paged.engine import PagedEngine
from backends.records import State
from backends.residency import MIB, Residency, device_memory
from backends.settings import Settings
from tests.engine_harness import Client, request
from tests.tiny_models import make_tiny_model

PATIENCE = 60
"""Seconds: a limit for what goes wrong."""


class Stub:
    """An engine as residency sees it."""

    def __init__(self, name: str, residency: Residency) -> None:
        self.info = BackendInfo(name=name, title=name)
        self.residency = residency
        self.is_busy = False
        self.reasons: list[str] = []
        self.heard: list[str] = []

    def has_work(self) -> bool:
        return self.is_busy

    async def make_way(self, reason: str) -> None:
        self.reasons.append(reason)

    async def take(self, size: int) -> None:
        await self.residency.take(self, size, self.heard.append)


def stubs(residency: Residency, names: str) -> Iterator[Stub]:
    return (Stub(name, residency) for name in names)


async def test_engines_that_fit_together_stay() -> None:
    residency = Residency(limit=10)
    a, b = stubs(residency, "ab")
    await a.take(4)
    await b.take(6)
    assert residency.residents == (a, b)


async def test_the_least_recently_used_makes_way_and_no_more_than_needed() -> None:
    residency = Residency(limit=10)
    a, b, c = stubs(residency, "abc")
    await a.take(4)
    await b.take(4)
    residency.touch(a)
    await c.take(4)
    assert residency.residents == (a, c)
    assert (a.reasons, b.reasons) == ([], ["Stopped to make room for c."])


async def test_whoever_is_busy_is_waited_for_and_the_wait_is_told() -> None:
    residency = Residency(limit=10)
    a, b = stubs(residency, "ab")
    await a.take(8)
    a.is_busy = True
    taking = asyncio.create_task(b.take(8))
    async with asyncio.timeout(PATIENCE):
        while not b.heard:
            await asyncio.sleep(0)
        assert not a.reasons
        a.is_busy = False
        await taking
    assert b.heard[0] == "Waiting for memory that a will give back"
    assert residency.residents == (b,)


async def test_an_engine_alone_is_never_held_back() -> None:
    residency = Residency(limit=10)
    (a,) = stubs(residency, "a")
    await a.take(99)
    assert residency.residents == (a,)


async def test_an_engine_that_comes_up_again_counts_once() -> None:
    residency = Residency(limit=10)
    a, b = stubs(residency, "ab")
    await a.take(6)
    await a.take(6)
    await b.take(4)
    assert residency.residents == (a, b)


@pytest.mark.parametrize(("device", "expected"), [("auto", 15360 * MIB), ("cuda", 15360 * MIB)])
def test_the_memory_of_the_first_gpu_counts_where_there_is_one(
    device: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '15360\\n24576\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert device_memory(device) == expected
    assert device_memory("cpu") not in (None, expected)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("residency")
    model = make_tiny_model(folder / "model", "llama", tokenizer="words")
    return Settings(model=str(model), cache_dir=folder / "cache", max_model_len=64, num_blocks=16)


async def test_a_real_engine_gives_its_memory_back_and_comes_up_again_when_it_is_asked(
    settings: Settings,
) -> None:
    residency = Residency(limit=1)
    engines: list[HostedEngine] = [NaiveEngine(settings), GenerateEngine(settings)]
    for engine in engines:
        engine.residency = residency
    naive, generate = engines
    try:
        async with asyncio.timeout(PATIENCE):
            await naive.start()
            await naive.control(ControlAction.PAUSE)
            waiting = Client(generate, request("later"))
            await waiting.task
            assert (naive.state.state, naive.state.reason) == (
                State.IDLE,
                f"Stopped to make room for {generate.info.title}.",
            )
            await naive.start()
            assert naive.state.state is State.PAUSED
            assert generate.state.state is State.IDLE
            assert residency.residents == (naive,)
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines))
    assert residency.residents == ()


async def test_an_engine_counts_its_weights_and_every_block_of_its_pool(settings: Settings) -> None:
    engine = PagedEngine(settings)
    try:
        async with asyncio.timeout(PATIENCE):
            await engine.start()
    finally:
        await engine.stop()
    assert engine.model is not None
    weights = sum(file.stat().st_size for file in Path(engine.model.path).glob("*.safetensors"))
    pool = 16 * settings.block_size * engine.model.shape.kv_values_per_token * 4
    assert weights > 0
    assert engine.footprint(engine.model, None) == int(1.2 * weights) + pool
    assert engine.footprint(engine.model, 2 * pool) == int(1.2 * weights) + pool
    assert engine.footprint(engine.model, pool) == int(1.2 * weights) + pool // 2
