"""Records → Prometheus metrics, record by record as they pass, in a registry of their own."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from backends.api.feed import Feed
from backends.api.histograms import Histograms
from backends.api.server_metrics import ServerMetrics
from backends.errors import ServescopeError
from backends.metrics import RequestTimeline, TimelineReducer
from backends.records import (
    AnyRecord,
    EngineState,
    Exposure,
    QueueSample,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    State,
    StepRecord,
    TokenEmitted,
)

OnEnd = Callable[[str, RequestTimeline], None]
"""Called with the backend's name and the whole life of a request that has ended."""


class PrometheusMetrics:
    """All metrics of one server; each has the label ``backend``, but for the count of HTTP responses."""

    def __init__(self, on_end: OnEnd = lambda backend, timeline: None) -> None:
        self._on_end = on_end
        self._reducers: defaultdict[str, TimelineReducer] = defaultdict(TimelineReducer)
        self._num_misdelivered: defaultdict[str, int] = defaultdict(int)
        self._exposed: set[tuple[Gauge, str]] = set()
        self._registry = CollectorRegistry()
        self._servers = ServerMetrics()
        self._registry.register(self._servers)
        self._histograms = Histograms(self._registry)
        self._add_counters()
        self._add_gauges()
        self._responses = Counter(
            "servescope_http_responses",
            "Responses over HTTP, by route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )

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
        self._cached = self._counter("prompt_tokens_cached", "Prompt tokens found by prefix caching.")
        self._crashes = self._counter("engine_crashes", "Times that an engine's process died.")
        self._zero_gaps = self._counter("itl_zero_gaps", "Gaps of zero: tokens that came together.")
        self._misdelivered = self._counter("misdelivered_results", "Results that reached another call.")
        self._chat_errors = self._counter(
            "chat_errors", "Chats of the page that ended with an error.", "code"
        )

    def _add_gauges(self) -> None:
        self._depth = self._gauge("queue_depth", "Depth of a queue on a token's way.", "queue")
        self._in_flight = self._gauge("requests", "Requests in flight, by status.", "status")
        self._free_blocks = self._gauge("kv_free_blocks", "Free KV-cache blocks.")
        self._kv_usage = self._gauge("kv_usage", "Share of the KV-cache blocks that requests hold, 0 to 1.")
        self._reserved = self._gauge("kv_reserved_slots", "KV slots set aside for requests in flight.")
        self._filled = self._gauge("kv_filled_slots", "KV slots of theirs that hold K and V.")
        self._viewers = self._gauge("viewers", "Open connections to the live feed.")
        self._problems = self._gauge("problems", "Things that are wrong; /health names them.")
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
            case EngineState():
                self._crashes.labels(backend).inc(record.state is State.CRASHED)
            case _:
                reducer.apply(record)

    def _step(self, backend: str, step: StepRecord, reducer: TimelineReducer) -> None:
        first_scheduled = [
            timeline
            for row in step.rows
            if (timeline := reducer.timelines.get(row.request_id)) and timeline.first_scheduled_time is None
        ]
        first_ids = {timeline.arrived.request_id for timeline in first_scheduled}
        recomputed_before = reducer.total.recomputed_tokens
        reducer.apply(step)
        self._steps.labels(backend).inc()
        self._histograms.step(backend, step)
        self._tokens_computed.labels(backend).inc(sum(row.num_scheduled_tokens for row in step.rows))
        self._recomputed.labels(backend).inc(reducer.total.recomputed_tokens - recomputed_before)
        self._preemptions.labels(backend).inc(len(step.preempted_ids))
        if step.num_padding_tokens is not None:
            self._padding.labels(backend).inc(step.num_padding_tokens)
        if step.attention_pairs is not None:
            self._pairs.labels(backend).inc(step.attention_pairs)
        for timeline in first_scheduled:
            self._histograms.scheduled(backend, timeline)
        self._cached.labels(backend).inc(sum(_found_first(row, first_ids) for row in step.rows))

    def _token(self, backend: str, timeline: RequestTimeline | None) -> None:
        self._output_tokens.labels(backend).inc()
        if timeline is None:
            return
        self._histograms.token(backend, timeline)
        if len(timeline.token_times) > 1:
            self._zero_gaps.labels(backend).inc(timeline.token_times[-1] == timeline.token_times[-2])

    def _end(self, backend: str, record: RequestFinished, timeline: RequestTimeline | None) -> None:
        self._finished.labels(backend, record.reason.value).inc()
        if timeline is not None:
            self._count_what_the_server_counted(backend, timeline)
            self._histograms.ended(backend, timeline)
            self._on_end(backend, timeline)

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

    def answered(self, method: str, route: str, status: int) -> None:
        """Count one response over HTTP, as it begins."""
        self._responses.labels(method, route, status).inc()

    def chat_failed(self, backend: str, error: ServescopeError) -> None:
        """Count one chat that ended with an error, which HTTP counts as a response like any other."""
        self._chat_errors.labels(backend, error.code).inc()

    # When asked

    def render(self, feeds: dict[str, Feed], problems: Iterable[str] = ()) -> bytes:
        """The text that Prometheus reads; gauges are taken from the head of each recorder.

        ``problems``: the backend of each thing that is wrong.
        """
        num_problems = Counts(problems)
        for backend, feed in feeds.items():
            state = feed.recorder.state
            self._up.labels(backend).set(state is not None and state.state in (State.READY, State.PAUSED))
            self._viewers.labels(backend).set(feed.num_viewers)
            self._problems.labels(backend).set(num_problems[backend])
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
            if header is not None and header.engine.num_blocks is not None:
                num_blocks = header.engine.num_blocks - (header.engine.null_block is not None)
                self._kv_usage.labels(backend).set(1 - snapshot.num_free_blocks / num_blocks)
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


def _found_first(row: ScheduledRow, first_ids: Collection[str]) -> int:
    """Tokens that prefix caching found when the request was scheduled for the first time."""
    return (row.num_cached_tokens or 0) if row.request_id in first_ids else 0
