"""Every lesson's experiment, by the name that the lesson's front matter gives."""

from __future__ import annotations

from backends.lessons.experiments import batching, caching, paging
from backends.lessons.runs import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "shape_of_a_batch": batching.shape_of_a_batch,
    "no_cache": caching.no_cache,
    "prefix_caching": caching.prefix_caching,
    "running_out": paging.running_out,
}
