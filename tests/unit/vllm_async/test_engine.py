"""The server's side of vLLM, without vLLM."""

from __future__ import annotations

import asyncio

from backends.records import TokenEmitted
from backends.settings import Settings
from backends.streams import RequestStream
from backends.vllm_async.engine import VllmEngine
from backends.vllm_async.messages import VllmUpdate
from backends.worker_messages import Token
from tests import factories as make
from tests.engine_harness import request


async def test_a_token_told_in_the_same_message_as_its_step_is_on_the_record_once() -> None:
    engine = VllmEngine(Settings())
    engine._streams["r0"] = RequestStream(request("r0"), asyncio.get_running_loop())
    step, told = make.step(7, [make.row("r0")]), make.token("r0", time=0.5, step_id=7)
    token = Token(request_id="r0", index=0, step_id=7, token_id=1, text=" a")
    engine.on_message(VllmUpdate(records=[step, told], tokens=[token], num_waiting=0))

    _, entries = engine.recorder.history()
    assert [entry.record for entry in entries if isinstance(entry.record, TokenEmitted)] == [told]
    assert engine.next_step_id == 8
    assert (await engine._streams["r0"].get()).text == " a"
