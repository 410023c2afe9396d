"""What servers tell of themselves in sums (``EngineGauges``), passed on to Prometheus.

The label ``server`` says which of several; it is empty where there is one. Counters are passed on as
they were read and not added up here: one that starts again at 0, because its server did, is what
Prometheus expects of a counter (``rate`` and ``increase`` see the reset), and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.records import EngineGauges

COUNTERS = {
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hits": "The part of them found there.",
    "num_preemptions": "Requests whose blocks were taken back.",
}


class ServerMetrics(Collector):
    """The last figures of every server; what a server does not tell has no sample."""

    def __init__(self) -> None:
        self._told: dict[str, Sequence[EngineGauges]] = {}

    def set(self, backend: str, gauges: Sequence[EngineGauges]) -> None:
        """The last of each of the backend's servers."""
        self._told[backend] = gauges

    def collect(self) -> Iterator[Metric]:
        requests = GaugeMetricFamily(
            "servescope_server_requests",
            "Requests in a server, by its own word.",
            labels=("backend", "server", "status"),
        )
        usage = GaugeMetricFamily(
            "servescope_server_kv_usage",
            "Share of a server's KV-cache blocks that requests hold.",
            labels=("backend", "server"),
        )
        counters = {
            field: CounterMetricFamily(
                f"servescope_server_{field.removeprefix('num_')}", text, labels=("backend", "server")
            )
            for field, text in COUNTERS.items()
        }
        for labels, gauges in self._servers():
            for status, number in (("running", gauges.num_running), ("waiting", gauges.num_waiting)):
                if number is not None:
                    requests.add_metric((*labels, status), number)
            if gauges.kv_cache_usage is not None:
                usage.add_metric(labels, gauges.kv_cache_usage)
            for field, counter in counters.items():
                if (value := getattr(gauges, field)) is not None:
                    counter.add_metric(labels, value)
        yield from (requests, usage, *counters.values())

    def _servers(self) -> Iterator[tuple[tuple[str, str], EngineGauges]]:
        for backend, told in self._told.items():
            for gauges in told:
                yield (backend, "" if gauges.server is None else str(gauges.server)), gauges
