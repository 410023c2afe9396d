"""Records → lines of the log: a request's arrival and its end, and what becomes of engines; with them what
was refused over HTTP or in the page's chat, which leaves no record.

event=arrived  backend=paged request_id=… source=chat stream=true prompt_tokens=29 max_tokens=64
event=finished backend=paged request_id=… reason=length prompt_tokens=29 output_tokens=64 queue_s=… …
event=engine   backend=paged state=crashed reason="The paged worker was ended by SIGKILL."
event=refused  method=POST route=/v1/chat/completions status=429
event=refused  source=chat backend=paged request_id=… code=overloaded status=429
"""

from __future__ import annotations

import logging

from backends.errors import ServescopeError
from backends.logs import say
from backends.metrics import RequestTimeline
from backends.records import AnyRecord, EngineState, FinishReason, RequestArrived, Source, State

logger = logging.getLogger(__name__)

DIGITS = 6
"""Of durations, in seconds."""
FIRST_REFUSAL, FAILURE = 400, 500
"""Statuses of HTTP."""
BAD_STATES = (State.CRASHED, State.UNAVAILABLE)


class EventLog:
    """Sees every record once, in order. Messages of failed requests are left out: a remote server's
    can repeat what it was asked."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}

    def observe(self, backend: str, record: AnyRecord) -> None:
        match record:
            case RequestArrived():
                say(
                    logger,
                    logging.INFO,
                    "arrived",
                    backend=backend,
                    request_id=record.request_id,
                    source=record.source.value,
                    stream=record.stream,
                    prompt_tokens=record.num_prompt_tokens,
                    max_tokens=record.max_tokens,
                )
            case EngineState() if record.state is not self._states.get(backend):
                self._states[backend] = record.state
                level = logging.ERROR if record.state in BAD_STATES else logging.INFO
                say(logger, level, "engine", backend=backend, state=record.state.value, reason=record.reason)
            case _:
                pass

    def ended(self, backend: str, timeline: RequestTimeline) -> None:
        """``total_s`` is until the end was recorded, whatever it was; ``e2e_s`` until the last token."""
        finished = timeline.finished
        assert finished is not None
        failed = finished.reason is FinishReason.ERROR
        say(
            logger,
            logging.WARNING if failed else logging.INFO,
            "finished",
            backend=backend,
            request_id=timeline.arrived.request_id,
            reason=finished.reason.value,
            prompt_tokens=timeline.num_prompt_tokens,
            output_tokens=timeline.num_output_tokens,
            preemptions=len(timeline.preemption_times),
            queue_s=_rounded(timeline.queue_time),
            ttft_s=_rounded(timeline.ttft),
            e2e_s=_rounded(timeline.e2e),
            total_s=_rounded(finished.time - timeline.arrived.time),
        )

    def answered(self, method: str, route: str, status: int) -> None:
        """``route`` as it was declared: what was asked for in its place is the visitor's text."""
        if status >= FIRST_REFUSAL:
            _refused(status, method=method, route=route)

    def chat_failed(self, backend: str, request_id: str | None, error: ServescopeError) -> None:
        """``backend``: empty where it is none of this server's. The error's words stay out: they can repeat
        what was asked."""
        _refused(
            error.status,
            source=Source.CHAT.value,
            backend=backend or None,
            request_id=request_id,
            code=error.code,
        )


def _refused(status: int, **fields: str | None) -> None:
    say(logger, logging.ERROR if status == FAILURE else logging.INFO, "refused", **fields, status=status)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, DIGITS)
