"""Records → Prometheus metrics, record by record as they pass, in a registry of their own."""

from __future__ import annotations

from collections import defaultdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from backends.api.feed import Feed
from backends.api.server_metrics import ServerMetrics
from backends.metrics import RequestTimeline, TimelineReducer
from backends.records import (
    AnyRecord,
    Exposure,
    QueueSample,
    RequestArrived,
    RequestFinished,
    State,
    StepRecord,
    TokenEmitted,
)

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)


class PrometheusMetrics:
    """All metrics of one server; each has the label ``backend``."""

    def __init__(self) -> None:
        self._reducers: defaultdict[str, TimelineReducer] = defaultdict(TimelineReducer)
        self._num_misdelivered: defaultdict[str, int] = defaultdict(int)
        self._exposed: set[tuple[Gauge, str]] = set()
        self._registry = CollectorRegistry()
        self._servers = ServerMetrics()
        self._registry.register(self._servers)
        self._add_counters()
        self._add_histograms()
        self._add_gauges()

    def _add_counters(self) -> None:
        self._arrived = self._counter("requests_arrived", "Requests accepted.", "source")
        self._finished = self._counter("requests_finished", "Requests ended, by reason.", "reason")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of accepted prompts.")
        self._output_tokens = self._counter("output_tokens", "Tokens emitted.")
        self._steps = self._counter("steps", "Forward passes.")
        self._tokens_computed = self._counter("tokens_computed", "Tokens that went through the model.")
        self._recomputed = self._counter("tokens_recomputed", "The part of them computed before.")
        self._padding = self._counter("padding_tokens", "Padding that went through the model.")
        self._pairs = self._counter("attention_pairs", "Query-key pairs, padding not counted.")
        self._preemptions = self._counter("preemptions", "Requests whose blocks were taken back.")
        self._misdelivered = self._counter("misdelivered_results", "Results that reached another call.")

    def _add_histograms(self) -> None:
        self._ttft = self._histogram("ttft_seconds", "Arrival to first token.", LONG)
        self._itl = self._histogram("itl_seconds", "Gap between two consecutive tokens.", SHORT)
        self._zero_gaps = self._counter("itl_zero_gaps", "Those of zero: tokens that came together.")
        self._e2e = self._histogram("e2e_seconds", "Arrival to last token, of requests that ran out.", LONG)
        self._queue_time = self._histogram("queue_time_seconds", "Arrival to first scheduled.", LONG)
        self._step_time = self._histogram("step_seconds", "Duration of a forward pass.", SHORT)

    def _add_gauges(self) -> None:
        self._depth = self._gauge("queue_depth", "Depth of a queue on a token's way.", "queue")
        self._in_flight = self._gauge("requests", "Requests in flight, by status.", "status")
        self._free_blocks = self._gauge("kv_free_blocks", "Free KV-cache blocks.")
        self._reserved = self._gauge("kv_reserved_slots", "KV slots set aside for requests in flight.")
        self._filled = self._gauge("kv_filled_slots", "KV slots of theirs that hold K and V.")
        self._viewers = self._gauge("viewers", "Open connections to the live feed.")
        self._up = self._gauge("engine_up", "1 while the engine takes requests (ready or paused).")

    # Record by record

    def observe(self, backend: str, record: AnyRecord) -> None:
        """Count one record; each record of a backend once, in order."""
        reducer = self._reducers[backend]
        match record:
            case RequestArrived():
                self._arrived.labels(backend, record.source.value).inc()
                self._prompt_tokens.labels(backend).inc(record.num_prompt_tokens or 0)
                reducer.apply(record)
            case StepRecord():
                self._step(backend, record, reducer)
            case TokenEmitted():
                reducer.apply(record)
                self._token(backend, reducer.timelines.get(record.request_id))
            case RequestFinished():
                reducer.apply(record)
                self._end(backend, record, reducer.timelines.get(record.request_id))
                reducer.forget(record.request_id)
            case QueueSample():
                self._queues(backend, record)
            case _:
                reducer.apply(record)

    def _step(self, backend: str, step: StepRecord, reducer: TimelineReducer) -> None:
        first_scheduled = [
            timeline
            for row in step.rows
            if (timeline := reducer.timelines.get(row.request_id)) and timeline.first_scheduled_time is None
        ]
        recomputed_before = reducer.total.recomputed_tokens
        reducer.apply(step)
        self._steps.labels(backend).inc()
        self._step_time.labels(backend).observe(step.duration)
        self._tokens_computed.labels(backend).inc(sum(row.num_scheduled_tokens for row in step.rows))
        self._recomputed.labels(backend).inc(reducer.total.recomputed_tokens - recomputed_before)
        self._preemptions.labels(backend).inc(len(step.preempted_ids))
        if step.num_padding_tokens is not None:
            self._padding.labels(backend).inc(step.num_padding_tokens)
        if step.attention_pairs is not None:
            self._pairs.labels(backend).inc(step.attention_pairs)
        for timeline in first_scheduled:
            if timeline.queue_time is not None:
                self._queue_time.labels(backend).observe(timeline.queue_time)

    def _token(self, backend: str, timeline: RequestTimeline | None) -> None:
        self._output_tokens.labels(backend).inc()
        if timeline is None:
            return
        if len(timeline.token_times) == 1 and timeline.ttft is not None:
            self._ttft.labels(backend).observe(timeline.ttft)
        elif len(timeline.token_times) > 1:
            gap = timeline.token_times[-1] - timeline.token_times[-2]
            self._itl.labels(backend).observe(gap)
            self._zero_gaps.labels(backend).inc(gap == 0)

    def _end(self, backend: str, record: RequestFinished, timeline: RequestTimeline | None) -> None:
        self._finished.labels(backend, record.reason.value).inc()
        if timeline is not None:
            self._count_what_the_server_counted(backend, timeline)
        if timeline is not None and timeline.is_complete and timeline.e2e is not None:
            self._e2e.labels(backend).observe(timeline.e2e)

    def _count_what_the_server_counted(self, backend: str, timeline: RequestTimeline) -> None:
        """Tokens that only the end tells of. A counter cannot take back: chunks without a token stay."""
        if timeline.arrived.num_prompt_tokens is None:
            self._prompt_tokens.labels(backend).inc(timeline.num_prompt_tokens or 0)
        uncounted = timeline.num_output_tokens - len(timeline.token_times)
        self._output_tokens.labels(backend).inc(max(0, uncounted))

    def _queues(self, backend: str, sample: QueueSample) -> None:
        for queue, depth in sample.queues.items():
            self._depth.labels(backend, queue).set(depth)
        self._depth.labels(backend, "streams").set(sum(sample.streams.values()))
        if sample.num_misdelivered is not None:
            known = self._num_misdelivered[backend]
            fresh = (
                sample.num_misdelivered - known
                if sample.num_misdelivered >= known
                else sample.num_misdelivered
            )
            self._misdelivered.labels(backend).inc(fresh)
            self._num_misdelivered[backend] = sample.num_misdelivered

    # When asked

    def render(self, feeds: dict[str, Feed]) -> bytes:
        """The text that Prometheus reads; gauges are taken from the head of each recorder."""
        for backend, feed in feeds.items():
            state = feed.recorder.state
            self._up.labels(backend).set(state is not None and state.state in (State.READY, State.PAUSED))
            self._viewers.labels(backend).set(feed.num_viewers)
            self._set_in_flight(backend, feed)
        return generate_latest(self._registry)

    def _set_in_flight(self, backend: str, feed: Feed) -> None:
        """A gauge appears once the engine has exposed what it shows."""
        snapshot, header = feed.recorder.head().snapshot, feed.recorder.header
        self._servers.set(backend, snapshot.gauges)
        self._in_flight.remove_by_labels({"backend": backend})  # an engine can stop showing its steps
        if header is not None and header.measured.get("batch") is Exposure.NOT_EXPOSED:
            self._in_flight.labels(backend, "unknown").set(len(snapshot.requests))
        else:
            num_running = sum(request.running for request in snapshot.requests)
            self._in_flight.labels(backend, "running").set(num_running)
            self._in_flight.labels(backend, "waiting").set(len(snapshot.requests) - num_running)
        if snapshot.num_free_blocks is not None:
            self._free_blocks.labels(backend).set(snapshot.num_free_blocks)
        for gauge, values in (
            (self._reserved, [request.reserved_slots for request in snapshot.requests]),
            (self._filled, [request.filled_slots for request in snapshot.requests]),
        ):
            known = [value for value in values if value is not None]
            if known:
                self._exposed.add((gauge, backend))
            if (gauge, backend) in self._exposed:
                gauge.labels(backend).set(sum(known))

    # Names

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"servescope_{name}", text, ("backend", *labels), registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"servescope_{name}", text, ("backend", *labels), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"servescope_{name}", text, ("backend",), registry=self._registry, buckets=buckets)
