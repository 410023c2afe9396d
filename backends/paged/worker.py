"""The paged engine's process: messages in, one step after the other, records and tokens out."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from backends.engine_child import ChildChannel, ParentGone
from backends.gate import Gate
from backends.paged import quality
from backends.paged.block_pool import BlockPool
from backends.paged.config import WorkerConfig
from backends.paged.core import EngineCore, Limits
from backends.paged.fast.cuda_graphs import CudaGraphs
from backends.paged.fast.graphed import with_graphs
from backends.paged.fast.kernels import DENSE, UnsupportedDtype, float32_kernels, int8_kernels
from backends.paged.fast.model import FastModel, reason_against
from backends.paged.kv_cache import KVCache, bytes_per_block
from backends.paged.model_runner import Model, ModelRunner, worst_difference
from backends.paged.plain_model import PlainModel, UnsupportedAttention, load_model
from backends.paged.scheduler import Scheduler
from backends.text import TextCodec
from backends.torch_worker import describe_worker, free_memory, resolve_device
from backends.worker_gate import work_gate
from backends.worker_messages import AbortRequest, AddRequest, ToWorker, WorkerUpdate

LARGEST_DIFFERENCE = 1e-3
"""Of logits, relative to their size, between this attention and transformers' own."""


class Worker:
    """Runs an ``EngineCore``. Its thread steps; another one hands messages in."""

    def __init__(self, core: EngineCore, send: Callable[[WorkerUpdate], None]) -> None:
        self.core = core
        self.gate = Gate(has_work=lambda: self.core.has_work() or not self._inbox.empty())
        self._send = send
        self._inbox: queue.Queue[AddRequest | AbortRequest | None] = queue.Queue()

    def take(self, message: ToWorker) -> None:
        """From the listening thread: the gate is worked at once, the rest waits for the step's end."""
        if isinstance(message, AddRequest | AbortRequest):
            self._inbox.put(message)
            self.gate.nudge()
        else:
            work_gate(self.gate, message)

    def close(self) -> None:
        """The server has gone."""
        self._inbox.put(None)
        self.gate.close()

    def run(self) -> None:
        """Step while there is work; while the gate is closed, requests still come and go."""
        while self._read_inbox():
            with self.gate.turn(lambda: self.core.has_work() and self._inbox.empty()) as granted:
                if granted:
                    self._send(self.core.step())

    def _read_inbox(self) -> bool:
        """Take in all that came, waiting for something where there is no work. False: closed."""
        with contextlib.suppress(queue.Empty):
            while True:
                match self._inbox.get(block=not self.core.has_work()):
                    case AddRequest() as request:
                        self.core.add(request)
                    case AbortRequest(request_id):
                        self._send(self.core.abort(request_id))
                    case None:
                        return False
        return True


def build_core(config: WorkerConfig) -> EngineCore:
    """Load the weights and lay out the pool. Raises ``UnsupportedAttention``, ``UnsupportedDtype``."""
    device = resolve_device(config.device)
    loaded = load_model(config.model.path, device)
    num_blocks = config.num_blocks or _default_num_blocks(config, device)
    cache = KVCache(
        config.model.shape,
        num_blocks=num_blocks,
        block_size=config.block_size,
        dtype=loaded.dtype,
        device=device,
    )
    codec = TextCodec.load(config.model)
    model = _float32_model(config, loaded, cache)
    difference = worst_difference(ModelRunner(model, cache), loaded)
    if difference > LARGEST_DIFFERENCE:
        raise UnsupportedAttention(
            f"{config.model.architecture} differs by {difference:.1%} from its own attention here."
        )
    if config.dtype == "int8":
        model = _int8_model(config, loaded)
        text = codec.encode(quality.TEXT)[: config.max_model_len]
        model.kernels += f"; {quality.difference(model, loaded, cache, text)}"
    return EngineCore(
        ModelRunner(model, cache),
        Scheduler(
            BlockPool(num_blocks, config.block_size),
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        ),
        codec,
        Limits(
            min(config.max_model_len, num_blocks * config.block_size),
            frozenset(config.model.eos_token_ids),
        ),
        first_step_id=config.first_step_id,
    )


def _float32_model(config: WorkerConfig, loaded: Any, cache: KVCache) -> Model:
    if config.kernels == "plain":
        return PlainModel(loaded)
    if (reason := reason_against(loaded)) is not None:
        return PlainModel(loaded, reason)
    if config.dtype == "int8":  # this one is only compared with
        return FastModel(loaded, DENSE, config.max_model_len)
    model = FastModel(loaded, float32_kernels(loaded.device, _folder(config)), config.max_model_len)
    if loaded.device.type != "cuda":
        return model
    return with_graphs(model, cache, config.max_num_seqs, config.max_model_len, CudaGraphs())


def _int8_model(config: WorkerConfig, loaded: Any) -> Model:
    if (reason := reason_against(loaded)) is not None:
        raise UnsupportedDtype(f"--dtype int8 does not know this model: {reason}.")
    return FastModel(loaded, int8_kernels(loaded.device, _folder(config)), config.max_model_len)


def _folder(config: WorkerConfig) -> Path:
    """Where compiled kernels are kept."""
    return Path(config.cache_dir) / "kernels"


def _default_num_blocks(config: WorkerConfig, device: str) -> int:
    needed = config.max_num_seqs * -(-config.max_model_len // config.block_size)
    block = bytes_per_block(config.model.shape, config.block_size, torch.float32)
    possible = int(free_memory(device) * config.memory_share) // block
    return max(1, min(needed, possible))


def main(channel: ChildChannel, config: WorkerConfig) -> None:
    """Load, say so, and step until the server goes."""
    channel.progress(0.2, "Loading the weights")
    try:
        core = build_core(config)
    except (UnsupportedAttention, UnsupportedDtype) as error:
        channel.fail(str(error))
        return
    ready = describe_worker(str(core.runner.device), core.runner.cache.slots.dtype)
    facts = {"dtype": config.dtype, "num_blocks": core.pool.num_blocks, "kernels": core.runner.model.kernels}
    channel.ready(msgspec.structs.replace(ready, **facts))
    worker = Worker(core, channel.send)
    threading.Thread(target=_listen, args=(channel, worker), name="listen", daemon=True).start()
    worker.run()


def _listen(channel: ChildChannel, worker: Worker) -> None:
    """Take messages while the model computes."""
    decode = msgspec.msgpack.Decoder(ToWorker).decode
    try:
        while True:
            worker.take(decode(channel.receive()))
    except ParentGone:
        worker.close()
