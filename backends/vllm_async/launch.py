"""Start ``AsyncLLM`` with the tap in its scheduler, and say what can be seen of it.

vLLM starts EngineCore as a process of its own. It is forked here rather than spawned, since this
process has vLLM loaded already and nothing else running: that halves the time to start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import torch
import vllm
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from backends.engine_child import die_with_parent
from backends.records import EngineConfig, EngineGauges
from backends.torch_worker import describe_worker
from backends.vllm_async.arguments import CannotRun, engine_arguments
from backends.vllm_async.last_words import LastWords
from backends.vllm_async.messages import TapConfig, TapHello, VllmReady, WorkerConfig
from backends.vllm_async.stat_logger import GaugeLogger
from backends.vllm_async.tap_link import TapLink

SCHEDULERS = "backends.vllm_async.scheduler_tap"


@dataclass(frozen=True)
class Launched:
    engine: AsyncLLM
    tap: TapLink | None
    ready: VllmReady


async def launch(
    config: WorkerConfig,
    progress: Callable[[float, str], None],
    tell_gauges: Callable[[EngineGauges], None],
    words: LastWords,
) -> Launched:
    """Raises ``CannotRun`` with vLLM's reason, ``RuntimeError`` when EngineCore was killed meanwhile.

    Must run in the main thread: the kernel ties EngineCore's life to the thread that forks it.
    """
    progress(0.3, "Reading vLLM's settings")
    vllm_config = _vllm_config(config)
    why_no_tap = _why_no_tap(config, vllm_config)
    tap = None if why_no_tap else _attach_tap(config, vllm_config)
    progress(0.5, "Starting EngineCore: weights, KV cache, warm-up")
    engine = _start(vllm_config, [] if tap else [partial(GaugeLogger, tell_gauges)], words)
    dtype = vllm_config.model_config.dtype
    assert isinstance(dtype, torch.dtype), "vLLM has settled it"
    ready = describe_worker(current_platform.device_type, dtype)
    said = msgspec.structs.asdict(ready)
    said["versions"] = ready.versions | {"vllm": vllm.__version__}
    if tap is None:
        return Launched(engine, None, VllmReady(**said, engine=_limits(vllm_config), why_no_tap=why_no_tap))
    hello = await tap.receive()
    assert isinstance(hello, TapHello), "the tap says hello before anything else"
    return Launched(engine, tap, VllmReady(**said, engine=hello.engine, why_no_kv=hello.why_no_kv))


def _vllm_config(config: WorkerConfig) -> VllmConfig:
    built_for = current_platform.device_type
    if config.device not in ("auto", built_for):
        raise CannotRun(
            f"--device is {config.device}, and the vLLM that is installed here is for {built_for}."
        )
    if current_platform.is_cpu():
        # Both threads of a small machine compute, and EngineCore holds its worker itself.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    arguments = engine_arguments(config)
    try:
        return arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    except (
        ValueError,
        RuntimeError,
        OSError,
    ) as error:  # a setting or a model that will not do
        raise CannotRun(str(error)) from error


def _why_no_tap(config: WorkerConfig, vllm_config: VllmConfig) -> str | None:
    """``None``: the scheduler can be seen."""
    if not config.use_tap:
        return "The tap on vLLM's scheduler is switched off (--no-vllm-tap)."
    if vllm_config.scheduler_config.scheduler_cls is not None:
        return "vLLM runs with a scheduler of the operator's own."
    if vllm_config.parallel_config.data_parallel_size > 1:
        return "With data parallelism vLLM has several schedulers, each with a KV cache of its own."
    try:
        import backends.vllm_async.scheduler_tap  # noqa: F401
    except (ImportError, AttributeError) as error:
        return f"The tap does not fit vLLM {vllm.__version__}: {error}"
    return None


def _attach_tap(config: WorkerConfig, vllm_config: VllmConfig) -> TapLink:
    scheduler_config = vllm_config.scheduler_config
    is_async = bool(scheduler_config.async_scheduling)
    scheduler_config.scheduler_cls = (
        f"{SCHEDULERS}.{'TappedAsyncScheduler' if is_async else 'TappedScheduler'}"
    )
    tap = TapLink(f"ipc://{config.scratch}/tap")
    said = TapConfig(
        address=tap.address,
        first_step_id=config.first_step_id,
        exact_shape=bool(vllm_config.model_config.enforce_eager),
    )
    theirs = vllm_config.additional_config
    assert isinstance(theirs, dict), "it came over a command line"
    vllm_config.additional_config = theirs | said.to_dict()
    return tap


def _start(vllm_config: VllmConfig, stat_loggers: list[Any], words: LastWords) -> AsyncLLM:
    if vllm_config.model_config.enforce_eager:
        # Small functions of vLLM's sampler are compiled all the same, when they are first used: half a
        # minute in the middle of an answer, or the end of EngineCore where there is no C++ compiler.
        torch.compiler.set_stance("force_eager")
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"  # vLLM has just said "spawn" for its CPU build
    os.register_at_fork(after_in_child=die_with_parent)
    try:
        return AsyncLLM.from_vllm_config(
            vllm_config,
            stat_loggers=stat_loggers,
            enable_log_requests=False,
            disable_log_stats=not stat_loggers,
        )
    except (ValueError, RuntimeError) as error:
        reason = words.read()
        if reason is None:  # killed: another try may go better
            raise
        raise CannotRun(reason) from error


def _limits(vllm_config: VllmConfig) -> EngineConfig:
    return EngineConfig(
        max_model_len=vllm_config.model_config.max_model_len,
        block_size=vllm_config.cache_config.block_size,
        num_blocks=vllm_config.cache_config.num_gpu_blocks,
        max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
        max_num_batched_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
    )
