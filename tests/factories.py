"""Records with sensible values, for tests that care about one or two of their fields."""

from __future__ import annotations

from typing import Any

from backends.records import (
    SCHEMA_VERSION,
    EngineConfig,
    EngineGauges,
    EngineState,
    FinishReason,
    ModelShape,
    Phase,
    QueueSample,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    Source,
    State,
    StepRecord,
    TokenEmitted,
    TraceHeader,
)


def header(backend: str = "naive", **fields: Any) -> TraceHeader:
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "backend": backend,
        "model": "tiny",
        "device": "cpu",
        "dtype": "float32",
        "engine": EngineConfig(max_model_len=64, batch_size=4),
        "shape": ModelShape(
            num_layers=12,
            hidden_size=768,
            num_attention_heads=12,
            num_kv_heads=12,
            head_dim=64,
            vocab_size=256,
        ),
        "versions": {"servescope": "0"},
        "hardware": "test",
        "started_at": "2025-01-01T00:00:00+00:00",
        "start_time": 0.0,
        "measured": {},
    }
    return TraceHeader(**(values | fields))


def arrived(request_id: str = "r0", time: float = 0.0, **fields: Any) -> RequestArrived:
    values: dict[str, Any] = {
        "seat": 0,
        "num_prompt_tokens": 4,
        "max_tokens": 20,
        "source": Source.API,
        "stream": True,
    }
    return RequestArrived(request_id=request_id, time=time, **(values | fields))


def row(
    request_id: str = "r0",
    scheduled: int = 1,
    computed: int = 0,
    phase: Phase = Phase.DECODE,
    **fields: Any,
) -> ScheduledRow:
    return ScheduledRow(
        request_id=request_id,
        phase=phase,
        num_scheduled_tokens=scheduled,
        num_computed_tokens=computed,
        **fields,
    )


def step(step_id: int, rows: list[ScheduledRow], start_time: float = 0.0, **fields: Any) -> StepRecord:
    values: dict[str, Any] = {
        "duration": 0.5,
        "input_shape": None,
        "num_padding_tokens": 0,
        "attention_pairs": sum(
            r.num_scheduled_tokens * (r.num_computed_tokens + r.num_scheduled_tokens) for r in rows
        ),
    }
    return StepRecord(step_id=step_id, start_time=start_time, rows=rows, **(values | fields))


def token(
    request_id: str = "r0", index: int = 0, time: float = 0.0, step_id: int | None = None
) -> TokenEmitted:
    return TokenEmitted(request_id=request_id, index=index, step_id=step_id, time=time)


def finished(
    request_id: str = "r0", time: float = 0.0, reason: FinishReason = FinishReason.LENGTH, **fields: Any
) -> RequestFinished:
    return RequestFinished(request_id=request_id, reason=reason, time=time, **fields)


def state(
    state: State = State.READY, backend: str = "naive", time: float = 0.0, **fields: Any
) -> EngineState:
    return EngineState(backend=backend, state=state, time=time, **fields)


def queues(time: float = 0.0, **fields: Any) -> QueueSample:
    return QueueSample(time=time, **({"queues": {}, "streams": {}} | fields))


def gauges(time: float = 0.0, **fields: Any) -> EngineGauges:
    return EngineGauges(time=time, **({"source": "/metrics"} | fields))
