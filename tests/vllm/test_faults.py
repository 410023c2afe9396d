"""The tap fails, the engine is restarted while it is paused, an argument is wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from backends.base import ControlAction
from backends.errors import EngineUnavailable, InvalidRequest
from backends.records import (
    EngineGauges,
    Exposure,
    FinishReason,
    State,
    StepRecord,
    TokenEmitted,
)
from backends.settings import Settings
from backends.vllm_async.engine import VllmEngine
from backends.vllm_async.messages import VllmUpdate
from tests.engine_harness import Client, Watch, request, started
from tests.vllm.conftest import POOL

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).resolve().parents[2]


async def test_a_tap_that_fails_leaves_sums_and_the_next_life_has_one_again(engine: VllmEngine) -> None:
    engine.on_message(VllmUpdate(num_waiting=None, tap_lost="KeyError: 'x'"))
    lost = engine.recorder.header
    with pytest.raises(InvalidRequest, match="KeyError"):
        await engine.control(ControlAction.STEP)

    await engine.control(ControlAction.RESTART)
    await engine.start()
    await engine.control(ControlAction.PAUSE)
    assert lost.measured["batch"] is Exposure.NOT_EXPOSED
    assert "KeyError" in lost.notes["transport"]
    assert engine.recorder.header.measured["batch"] is Exposure.MEASURED


async def test_a_pause_holds_over_a_restart(engine: VllmEngine) -> None:
    await engine.control(ControlAction.PAUSE)
    await engine.control(ControlAction.RESTART)
    await engine.start()
    watch = Watch(engine)
    client = Client(engine, request("held", "One", max_tokens=2, ignore_eos=True))
    await watch.until(lambda: any(sample.queues.get("waiting") for sample in watch.samples))
    assert watch.steps == []
    await engine.control(ControlAction.RESUME)
    await client.task
    assert len(watch.steps) == 2


async def test_without_the_tap_text_still_comes_and_only_sums_are_told() -> None:
    """With arguments passed through, which win."""
    arguments = "--max-num-seqs 3 --max-model-len 96"
    async with started(VllmEngine(Settings(**POOL, vllm_tap=False, vllm_args=arguments))) as engine:
        watch = Watch(engine)
        client = Client(engine, request("sums", "One two three", max_tokens=4, ignore_eos=True))
        await client.task
        gone = Client(engine, request("gone", "One two three", max_tokens=200, ignore_eos=True))
        await gone.receives(2)
        await gone.leave()
        await watch.until(lambda: "gone" in watch.finished())
        with pytest.raises(InvalidRequest, match="switched off"):
            await engine.control(ControlAction.PAUSE)
        header = engine.recorder.header

    assert header is not None
    assert (header.engine.max_num_seqs, header.engine.max_model_len) == (3, 96)
    assert len(client.tokens) == 4
    assert watch.finished() == {"sums": FinishReason.LENGTH, "gone": FinishReason.ABORT}
    assert not [record for record in watch.records if isinstance(record, StepRecord)]
    told = [record for record in watch.records if isinstance(record, TokenEmitted)]
    assert {token.step_id for token in told} == {None}
    gauges = [record for record in watch.records if isinstance(record, EngineGauges)]
    assert max(gauge.num_running for gauge in gauges) == 1
    assert max(gauge.kv_cache_usage for gauge in gauges) > 0
    assert header.measured["kv"] is header.measured["batch"] is Exposure.NOT_EXPOSED
    assert "switched off" in header.notes["transport"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vllm_args": "--no-such-argument 1"}, "no-such-argument"),
        ({"vllm_args": "--max-model-len many"}, "max-model-len"),
        ({"vllm_args": "--max-model-len 100000"}, "100000"),
        ({"vllm_args": "--dtype 'float32"}, "quotation"),
        ({"device": "cuda"}, "is for cpu"),
    ],
)
async def test_what_vllm_refuses_makes_it_unavailable_in_words(options: dict[str, str], said: str) -> None:
    engine = VllmEngine(Settings(**POOL, **options))
    try:
        with pytest.raises(EngineUnavailable, match=said):
            await engine.start()
        assert engine.state.state is State.UNAVAILABLE
    finally:
        await engine.stop()


async def test_a_hook_that_fails_takes_the_tap_away_and_not_the_engine() -> None:
    """In a process of its own: vLLM is heavy, and not made to be imported here."""
    code = textwrap.dedent(
        """
        import sys, tempfile, types
        from unittest.mock import MagicMock
        import msgspec, zmq
        from backends.vllm_async.messages import FromTap, TapConfig
        from backends.vllm_async.scheduler_tap import Tap
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        address = f"ipc://{tempfile.mkdtemp()}/tap"
        worker = zmq.Context.instance().socket(zmq.ROUTER)
        worker.bind(address)
        group = types.SimpleNamespace(kv_cache_spec=MagicMock(spec=FullAttentionSpec))
        type(group.kv_cache_spec).__name__ = "FullAttentionSpec"
        limits = {"max_model_len": 8, "max_num_running_reqs": 2, "max_num_scheduled_tokens": 8}
        scheduler = MagicMock(block_size=4, **limits)
        scheduler.cache_config.num_gpu_blocks = 3
        scheduler.kv_cache_manager.block_pool.null_block.block_id = 0
        scheduler.kv_cache_config.kv_cache_groups = [group]
        scheduler.get_request_counts.side_effect = KeyError("as if vLLM had renamed it")
        tap = Tap(scheduler, TapConfig(address=address, first_step_id=0, exact_shape=True))
        tap.added("request-12345678")
        tap.added("request-12345678")
        assert tap.is_lost and tap.may_step()
        said = [msgspec.msgpack.decode(worker.recv_multipart()[1], type=FromTap) for _ in range(2)]
        print([type(message).__name__ for message in said], said[1].sentence, worker.poll(200))
        """
    )
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, _ = await done.communicate()
    assert out.decode().split("\n")[-2] == "['TapHello', 'TapLost'] KeyError: 'as if vLLM had renamed it' 0"
