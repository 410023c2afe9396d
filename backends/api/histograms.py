"""Distributions for Prometheus: of each request as it ends, of each token and of each step.

Buckets are vLLM's (0.32, ``vllm/v1/metrics/buckets.py``), so that both can stand in one chart; queue times
begin lower here, since engines on one machine often schedule at once.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from backends.metrics import RequestTimeline
from backends.records import StepRecord

Buckets = tuple[float, ...]

FIRST_TOKEN: Buckets = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)  # fmt: skip
TOKEN: Buckets = (
    *(0.001, 0.0025, 0.005),  # tiny models on this machine; vLLM begins with the next
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)  # fmt: skip
REQUEST: Buckets = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
QUEUE: Buckets = (0.001, 0.005, 0.01, 0.05, 0.1, *REQUEST)
STEP_TOKENS: Buckets = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS: Buckets = tuple(mantissa * 10**power for power in range(6) for mantissa in (1, 2, 5))
"""Of a request, prompt or output: 1, 2, 5, 10 … 500,000."""
PREEMPTIONS: Buckets = (0, 1, 2, 3, 4, 5, 10, 20)
DEPTH: Buckets = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histograms:
    """Each has the label ``backend``. Latencies of ends are of requests that ran out."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._ttft = self._new("ttft_seconds", "Arrival to first token.", FIRST_TOKEN)
        self._itl = self._new("itl_seconds", "Gap between two consecutive tokens.", TOKEN)
        self._tpot = self._new("tpot_seconds", "(Last - first token) / (n - 1), of a request.", TOKEN)
        self._queue_time = self._new("queue_time_seconds", "Arrival to first scheduled.", QUEUE)
        self._prefill = self._new("prefill_seconds", "First scheduled to first token.", REQUEST)
        self._decode = self._new("decode_seconds", "First to last token.", REQUEST)
        self._e2e = self._new("e2e_seconds", "Arrival to last token, of requests that ran out.", REQUEST)
        self._prompt = self._new("request_prompt_tokens", "Tokens of a request's prompt.", REQUEST_TOKENS)
        self._output = self._new("request_output_tokens", "Tokens of a request's answer.", REQUEST_TOKENS)
        self._preempted = self._new(
            "request_preemptions", "Times that a request lost its blocks.", PREEMPTIONS
        )
        self._step_time = self._new("step_seconds", "Duration of a forward pass.", TOKEN)
        self._step_tokens = self._new("step_tokens", "Tokens computed in a forward pass.", STEP_TOKENS)
        self._step_requests = self._new("step_requests", "Requests in a forward pass.", DEPTH)
        self._step_waiting = self._new("step_waiting", "Requests that waited during a forward pass.", DEPTH)

    def step(self, backend: str, step: StepRecord) -> None:
        self._step_time.labels(backend).observe(step.duration)
        self._step_tokens.labels(backend).observe(sum(row.num_scheduled_tokens for row in step.rows))
        self._step_requests.labels(backend).observe(len(step.rows))
        self._step_waiting.labels(backend).observe(len(step.waiting_ids))

    def scheduled(self, backend: str, timeline: RequestTimeline) -> None:
        """For the first time."""
        if timeline.queue_time is not None:
            self._queue_time.labels(backend).observe(timeline.queue_time)

    def token(self, backend: str, timeline: RequestTimeline) -> None:
        """The latest."""
        if len(timeline.token_times) > 1:
            self._itl.labels(backend).observe(timeline.token_times[-1] - timeline.token_times[-2])
        elif timeline.ttft is not None:
            self._ttft.labels(backend).observe(timeline.ttft)

    def ended(self, backend: str, timeline: RequestTimeline) -> None:
        self._preempted.labels(backend).observe(len(timeline.preemption_times))
        if not timeline.is_complete:
            return
        if timeline.num_prompt_tokens is not None:
            self._prompt.labels(backend).observe(timeline.num_prompt_tokens)
        self._output.labels(backend).observe(timeline.num_output_tokens)
        for histogram, value in (
            (self._tpot, timeline.tpot),
            (self._prefill, timeline.prefill_time),
            (self._decode, timeline.decode_time),
            (self._e2e, timeline.e2e),
        ):
            if value is not None:
                histogram.labels(backend).observe(value)

    def _new(self, name: str, text: str, buckets: Buckets) -> Histogram:
        return Histogram(f"servescope_{name}", text, ("backend",), registry=self._registry, buckets=buckets)
