"""Every lesson's experiment, by the name that the lesson's front matter gives."""

from __future__ import annotations

from backends.lessons.experiments import batching, caching, paging, waiting
from backends.lessons.runs import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "blocking_calls": batching.blocking_calls,
    "long_prefill": waiting.long_prefill,
    "no_cache": caching.no_cache,
    "one_at_a_time": waiting.one_at_a_time,
    "padding": batching.padding,
    "prefix_caching": caching.prefix_caching,
    "reserving": paging.reserving,
    "running_out": paging.running_out,
    "shape_of_a_batch": batching.shape_of_a_batch,
    "static_batch": batching.static_batch,
    "streaming": waiting.streaming,
}
