"""Requests that a held vLLM has taken in."""

from __future__ import annotations

from backends.base import ControlAction, GenerationRequest
from backends.records import QueueSample
from backends.vllm_async.engine import VllmEngine
from tests.engine_harness import Client, Watch

SENTENCE = "The quick brown fox jumps over the lazy dog and runs on through the forest to the river. "
"""Two of them fill a block of 32."""


async def held_in_vllm(engine: VllmEngine, *requests: GenerationRequest) -> list[Client]:
    """The engine paused, and these waiting in vLLM's scheduler, in order: it is two processes away, so
    having arrived in this one is not enough."""
    if not engine.gate.paused:
        await engine.control(ControlAction.PAUSE)
    clients = []
    for item in requests:
        watch, target = Watch(engine), num_waiting(engine) + len(item.prompts)
        clients.append(Client(engine, item))
        await watch.until(lambda target=target: num_waiting(engine) == target)
    return clients


def num_waiting(engine: VllmEngine) -> int:
    """In vLLM's scheduler, as last told."""
    _, entries = engine.recorder.history()
    samples = [entry.record for entry in entries if isinstance(entry.record, QueueSample)]
    return samples[-1].queues["waiting"] if samples else 0
