"""Where the scheduler cannot be seen: the sums that vLLM tells a stat logger after every step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from backends.records import EngineGauges


class GaugeLogger(StatLoggerBase):
    """vLLM: ``vllm.v1.metrics.loggers.StatLoggerBase``, ``vllm.v1.metrics.stats.SchedulerStats``.

    vLLM calls it on the event loop. With data parallelism there is one for each engine.
    """

    def __init__(self, tell: Callable[[EngineGauges], None], vllm_config: Any, engine_index: int = 0) -> None:
        self._tell = tell
        self._server = engine_index if vllm_config.parallel_config.data_parallel_size > 1 else None
        self._num_queries = 0
        self._num_hits = 0
        self._num_preemptions = 0

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """``prefix_cache_stats`` and ``num_preempted_reqs`` count since the last call."""
        if iteration_stats is not None:
            self._num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is None:
            return
        self._num_queries += scheduler_stats.prefix_cache_stats.queries
        self._num_hits += scheduler_stats.prefix_cache_stats.hits
        self._tell(
            EngineGauges(
                time=time.monotonic(),
                source="vLLM's stat logger",
                server=self._server,
                num_running=scheduler_stats.num_running_reqs,
                num_waiting=scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs,
                kv_cache_usage=scheduler_stats.kv_cache_usage,
                prefix_cache_queries=self._num_queries,
                prefix_cache_hits=self._num_hits,
                num_preemptions=self._num_preemptions,
            )
        )

    def log_engine_initialized(self) -> None:
        """Nothing to say: the header tells it."""
