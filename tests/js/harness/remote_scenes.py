"""Scenes of engines that run elsewhere: no steps, tokens in chunks, sums that the servers tell."""

from __future__ import annotations

import msgspec

from backends.records import (
    AnyRecord,
    EngineConfig,
    EngineGauges,
    Exposure,
    FinishReason,
    RequestArrived,
    RequestFinished,
    Source,
    TokenEmitted,
)
from tests.js.harness.scenarios import Stage, header

NOTES = {
    "batch": "The server runs elsewhere and does not tell what is in its steps.",
    "kv": "An OpenAI-compatible server does not tell which block is whose.",
    "queues": "Only the server knows whether a request waits or runs.",
    "transport": "The server runs elsewhere: it cannot be paused, stepped or slowed down from here.",
}


def remote(num_servers: int = 1, num_requests: int = 9) -> list[AnyRecord]:
    """Requests go to the servers in turn; two tokens in some chunks; figures once a second."""
    opening = msgspec.structs.replace(
        header("remote", EngineConfig(), Exposure.NOT_EXPOSED, NOTES),
        device="elsewhere",
        dtype="not exposed",
        shape=None,
        measured={
            "batch": Exposure.NOT_EXPOSED,
            "kv": Exposure.NOT_EXPOSED,
            "queues": Exposure.NOT_EXPOSED,
            "latency": Exposure.DERIVED,
        },
    )
    stage = Stage(opening)
    end = stage.now
    events: list[AnyRecord] = []
    for number in range(num_requests):
        events += _request(stage, number, stage.now + 1.7 * number)
        end = max(end, events[-1].time)
    for second in range(int(end - stage.now)):
        for server in range(num_servers):
            events.append(_gauges(stage, second, None if num_servers == 1 else server))
    return [opening, *sorted(events, key=lambda record: record.time)]


def _request(stage: Stage, number: int, start: float) -> list[AnyRecord]:
    name = f"req-{number:04d}"
    records: list[AnyRecord] = [
        RequestArrived(
            request_id=name,
            seat=number % 5,
            num_prompt_tokens=None,
            max_tokens=200,
            source=Source.CHAT if number == 0 else Source.API,
            stream=True,
            time=start,
        )
    ]
    time = start + 0.4 + stage.random.random()
    chunks = 20 + stage.random.randrange(30)
    for index in range(chunks):
        records.append(TokenEmitted(request_id=name, index=index, step_id=None, time=time))
        time += 0.0 if index % 9 == 8 else 0.03 + 0.05 * stage.random.random()
    if number < 7:
        records.append(
            RequestFinished(
                request_id=name,
                reason=FinishReason.STOP,
                time=time,
                num_prompt_tokens=31 + number,
                num_output_tokens=chunks + (number % 3) * 11,
            )
        )
    return records


def _gauges(stage: Stage, second: int, server: int | None) -> EngineGauges:
    wave = (1 + (second * (3 + (server or 0))) % 11) / 12
    return EngineGauges(
        time=stage.now + second + 0.5,
        source="/metrics",
        server=server,
        num_running=1 + int(5 * wave),
        num_waiting=int(3 * wave),
        kv_cache_usage=0.08 + 0.7 * wave,
        prefix_cache_queries=1000 + 431 * second,
        prefix_cache_hits=400 + 270 * second,
        num_preemptions=second // 6,
    )
