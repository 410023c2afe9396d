"""Every lesson's experiment, by the name that the lesson's front matter gives."""

from __future__ import annotations

from backends.lessons.experiments import batching, caching, counting, paging, queues, service, waiting, wire
from backends.lessons.runs import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "blocking_mode": batching.blocking_mode,
    "lines_of_code": counting.lines_of_code,
    "long_prefill": waiting.long_prefill,
    "no_cache": caching.no_cache,
    "one_at_a_time": waiting.one_at_a_time,
    "one_queue_per_request": queues.one_queue_per_request,
    "padding": batching.padding,
    "prefix_caching": caching.prefix_caching,
    "reserving": paging.reserving,
    "replicas": service.replicas,
    "running_out": paging.running_out,
    "server_sent_events": wire.server_sent_events,
    "shape_of_a_batch": batching.shape_of_a_batch,
    "static_batch": batching.static_batch,
    "streaming": waiting.streaming,
    "waiting_client": batching.waiting_client,
    "why_so_much_memory": counting.why_so_much_memory,
}
