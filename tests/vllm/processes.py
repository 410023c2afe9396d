"""vLLM's EngineCore, found by its name among the processes."""

from __future__ import annotations

import psutil

from backends.vllm_async.engine import VllmEngine
from tests.stages import worker_of


def engine_cores_of(process: psutil.Process) -> list[psutil.Process]:
    """Those somewhere below it, each under the name that it gives itself as it starts."""
    return [child for child in process.children(recursive=True) if "EngineCore" in child.name()]


def engine_core_of(engine: VllmEngine) -> psutil.Process:
    (core,) = engine_cores_of(worker_of(engine))
    return core
