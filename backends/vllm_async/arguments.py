"""Settings → vLLM's own engine arguments.

Whatever ``vllm serve`` understands can be passed through, spelled the same way:
``--vllm-args "--tensor-parallel-size 2 --quantization awq"``. What is passed wins.
"""

from __future__ import annotations

import shlex
from typing import Any, NoReturn

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform
from vllm.utils.argparse_utils import FlexibleArgumentParser

from backends.vllm_async.messages import WorkerConfig

CPU_BLOCK_SIZE = 32
"""vLLM's attention on a CPU wants blocks of a multiple of this."""
BYTES_PER_VALUE = 4
"""float32, which this project runs on a CPU: bfloat16 is slow without AVX-512."""


class CannotRun(Exception):
    """vLLM refuses to run here like this, and would again."""


class _Parser(FlexibleArgumentParser):
    """Says what is wrong instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise CannotRun(f"--vllm-args: {message}")


def engine_arguments(config: WorkerConfig) -> AsyncEngineArgs:
    """Raises ``CannotRun``."""
    parser = _Parser(prog="--vllm-args", add_help=False)  # type: ignore[no-untyped-call]
    AsyncEngineArgs.add_cli_args(parser)
    parser.set_defaults(**_defaults(config))
    try:
        words = shlex.split(config.arguments)
    except ValueError as error:
        raise CannotRun(f"--vllm-args: {error}") from None
    namespace = parser.parse_args(words)
    arguments: AsyncEngineArgs = AsyncEngineArgs.from_cli_args(namespace)
    return arguments


def block_size(config: WorkerConfig) -> int:
    """The operator's, rounded up to what vLLM's attention can use here."""
    if not current_platform.is_cpu():
        return config.block_size
    return -(-config.block_size // CPU_BLOCK_SIZE) * CPU_BLOCK_SIZE


def _defaults(config: WorkerConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": str(config.model.path),
        "served_model_name": [config.model.name],
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "max_num_seqs": config.max_num_seqs,
        "enforce_eager": config.enforce_eager,
        "use_tqdm_on_load": False,
        "block_size": block_size(config),
        "max_model_len": config.max_model_len,
        "max_num_batched_tokens": config.max_num_batched_tokens,
    }
    if current_platform.is_cpu():
        arguments["dtype"] = "float32"
    if config.num_blocks is not None:
        # Block 0 is vLLM's null block, which no request gets.
        fits = max(1, config.num_blocks - 1) * block_size(config)
        arguments |= {
            "num_gpu_blocks_override": config.num_blocks,
            "max_model_len": min(config.max_model_len, fits),
        }
        if current_platform.is_cpu():  # or half of the memory would be asked for, and not used
            arguments["kv_cache_memory_bytes"] = config.num_blocks * _bytes_per_block(config)
    return arguments


def _bytes_per_block(config: WorkerConfig) -> int:
    return config.model.shape.kv_values_per_token * BYTES_PER_VALUE * block_size(config)
