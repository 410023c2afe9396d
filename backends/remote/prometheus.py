"""A server's ``/metrics`` → ``EngineGauges``. What a server does not tell stays ``None``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from backends.records import EngineGauges

SOURCE = "/metrics"

NAMES: dict[str, tuple[str, ...]] = {
    "num_running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "llamacpp:requests_processing",
    ),
    "num_waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "llamacpp:requests_deferred",
    ),
    "kv_cache_usage": (
        "vllm:kv_cache_usage_perc",  # a share, whatever its name says
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "prefix_cache_queries": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "num_preemptions": ("vllm:num_preemptions_total",),
}
"""Field → its name on each kind of server."""

_WANTED = {name for names in NAMES.values() for name in names}
_LARGEST_COUNT = 2.0**53
"""Up to here a float counts exactly."""


class _Sample(NamedTuple):
    model: str | None
    value: float


def read_gauges(text: str, model: str, *, time: float, server: int | None) -> EngineGauges | None:
    """The figures of this model, summed over the engines of a server (their shares averaged).

    ``None`` where the text has none of them. Raises ``ValueError`` for what is no Prometheus text.
    """
    samples = _samples(text)
    values = {field: _first(samples, names) for field, names in NAMES.items()}
    told = {
        field: _figure(field, _of_model(found, model)) for field, found in values.items() if found is not None
    }
    if all(figure is None for figure in told.values()):
        return None
    return EngineGauges(time=time, source=SOURCE, server=server, **told)  # type: ignore[arg-type]


def _samples(text: str) -> dict[str, list[_Sample]]:
    """Of the lines that matter: a server tells a thousand others, and this is done every second."""
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in _WANTED]
    samples: dict[str, list[_Sample]] = defaultdict(list)
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            samples[sample.name].append(_Sample(sample.labels.get("model_name"), sample.value))
    return samples


def _first(samples: dict[str, list[_Sample]], names: Sequence[str]) -> list[_Sample] | None:
    return next((samples[name] for name in names if name in samples), None)


def _of_model(samples: list[_Sample], model: str) -> list[float]:
    """Those with the model's name. A server that knows one model by another name means that one."""
    models = {sample.model for sample in samples}
    wanted = model if model in models else next(iter(models)) if len(models) == 1 else model
    return [sample.value for sample in samples if sample.model == wanted]


def _figure(field: str, values: list[float]) -> float | None:
    """``None`` for what cannot be true."""
    combine: Callable[[list[float]], float] = _mean if field == "kv_cache_usage" else math.fsum
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        return None
    figure = combine(values)
    if field == "kv_cache_usage":
        return figure if figure <= 1 else None
    return int(figure) if figure < _LARGEST_COUNT else None


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
