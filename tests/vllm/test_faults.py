"""The tap fails, the engine is restarted while it is paused, an argument is wrong."""

from __future__ import annotations

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
from tests.vllm.lone_tap import printed_beside_a_tap

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    printed = await printed_beside_a_tap(
        """
        failing = scheduler()
        failing.get_request_counts.side_effect = KeyError("as if vLLM had renamed it")
        worker = Worker(failing)
        for _ in range(2):
            worker.tap.added(vllm_request())
        assert worker.tap.is_lost and worker.tap.may_step()
        print(worker.hear())
        """
    )
    assert printed == """[TapLost(sentence="KeyError: 'as if vLLM had renamed it'")]"""


async def test_a_pause_holds_a_request_that_has_overtaken_it() -> None:
    """They reach EngineCore on two sockets, and nothing says in which order."""
    printed = await printed_beside_a_tap(
        """
        from threading import Timer
        from backends.worker_messages import SetGate

        worker = Worker(scheduler())
        late = Timer(0.3, worker.tell, [SetGate(paused=True, step_delay=0)])
        late.start()
        worker.tap.added(vllm_request(num_told=1))
        late.join()
        print(worker.tap.hold.paused, worker.tap.may_step(), [type(said).__name__ for said in worker.hear()])
        """
    )
    assert printed == "True False ['TapReport']"


async def test_a_message_to_the_tap_that_never_comes_takes_it_away_and_says_so() -> None:
    printed = await printed_beside_a_tap(
        """
        from backends.vllm_async import scheduler_tap
        from backends.worker_messages import SetGate

        scheduler_tap.LATEST_MS = 300
        worker = Worker(scheduler())
        worker.tell(SetGate(paused=True, step_delay=0))
        worker.tap.added(vllm_request(num_told=2))
        print(worker.tap.may_step(), worker.hear())
        """
    )
    said = "TimeoutError: 2 messages were sent, and only 1 have come"
    assert printed == f"True [TapLost(sentence={said!r})]"
