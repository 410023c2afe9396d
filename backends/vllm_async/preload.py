"""Where the vLLM worker begins: the environment, then vLLM and all it needs.

The fork server imports this once, for every life of the worker. vLLM reads the environment while it
is imported, so this is the one module here that does something when it is imported.
"""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is reported to anybody
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are here already
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the worker forks

import vllm.v1.engine.core
import vllm.v1.executor.uniproc_executor
from vllm.platforms import current_platform

from backends.vllm_async.worker import main

__all__ = ["main"]

if current_platform.is_cpu():
    import vllm.v1.worker.cpu_worker  # noqa: F401
