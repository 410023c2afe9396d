"""The worker process: ``model.generate()``, one call after the other.

The KV cache is reserved for the longest text, whatever a request needs::

    row A   [k k k k k k . . . . . . . . . . . . . . . . . .]   6 of 24 slots filled
    row B   [p p p k k k . . . . . . . . . . . . . . . . . .]   padding takes slots as well
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, StaticCache

from backends.engine_child import ChildChannel, ParentGone
from backends.gate import Gate
from backends.generate.messages import WorkerConfig
from backends.generate.steps import BatchSteps, NobodyWaits
from backends.generate.workload import Row, Workload
from backends.text import OutputText, TextCodec
from backends.torch_worker import describe_worker, resolve_device
from backends.worker_gate import work_gate
from backends.worker_messages import AbortRequest, AddRequest, ToWorker, WorkerUpdate

Send = Callable[[WorkerUpdate], None]


class ModelWorker:
    """A model, the requests for it, and the gate before each of its steps."""

    def __init__(self, model: Any, config: WorkerConfig, send: Send) -> None:
        self.model = model
        self.config = config
        self.codec = TextCodec.load(config.model)
        self.workload = Workload(batch_size=config.batch_size, max_model_len=config.max_model_len)
        self.gate = Gate(has_work=self.workload.has_work)
        self.send = send
        self.next_step_id = config.first_step_id
        self.eos_token_ids = frozenset(config.model.eos_token_ids)
        # Otherwise a repetition penalty or the like of the model's own file would apply unseen.
        self.model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]

    def run(self) -> None:
        """Batch after batch, until the server goes."""
        while self.workload.wait_for_work():
            self.run_batch()

    def run_batch(self) -> None:
        """Wait for permission, and only then choose who runs: who came meanwhile is in."""
        turn = self.gate.turn(self.workload.has_waiting)
        if turn.__enter__():
            self.generate(self.workload.next_batch(), turn)
        else:
            turn.__exit__(None, None, None)

    @torch.inference_mode()
    def generate(self, batch: list[Row], turn: AbstractContextManager[bool]) -> None:
        """One call of ``model.generate()``. ``turn`` is the first step's, already granted."""
        sampling = batch[0].request.sampling
        if sampling.seed is None:
            torch.seed()
        else:
            torch.manual_seed(sampling.seed)
        cache = StaticCache(config=self.model.config, max_cache_len=self.config.max_model_len)
        steps = BatchSteps(
            batch,
            cache=cache,
            workload=self.workload,
            gate=self.gate,
            first_turn=turn,
            first_step_id=self.next_step_id,
            eos_token_ids=self.eos_token_ids,
            send=self.send,
        )
        try:
            with self.model.register_forward_pre_hook(steps.before_forward, with_kwargs=True):
                self.model.generate(
                    **self._pad_left(batch),
                    past_key_values=cache,
                    generation_config=self._generation_config(batch),
                    stopping_criteria=[steps],
                )
        except NobodyWaits:
            return
        finally:
            self.next_step_id = steps.next_step_id
            self.workload.end_batch()

    @property
    def pad_token_id(self) -> int:
        """Any id will do, for the mask hides it."""
        return next(iter(self.config.model.eos_token_ids), 0)

    def _pad_left(self, batch: list[Row]) -> dict[str, torch.Tensor]:
        """Ids and mask ``[batch, longest]``. On the left, since the next token is read from the
        last position."""
        prompts = [row.request.prompt_ids for row in batch]
        longest = max(len(prompt) for prompt in prompts)
        gaps = [longest - len(prompt) for prompt in prompts]
        ids = [[self.pad_token_id] * gap + prompt for gap, prompt in zip(gaps, prompts, strict=True)]
        mask = [[0] * gap + [1] * (longest - gap) for gap in gaps]
        device = self.model.device
        return {
            "input_ids": torch.tensor(ids, device=device),
            "attention_mask": torch.tensor(mask, device=device),
        }

    def _generation_config(self, batch: list[Row]) -> GenerationConfig:
        """The end of a row is ``BatchSteps``' business: each has its own limit and stop strings."""
        sampling = batch[0].request.sampling
        drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        return GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=max(row.most_tokens for row in batch),
            do_sample=sampling.temperature > 0,
            **(drawn if sampling.temperature > 0 else {}),
            pad_token_id=self.pad_token_id,
            eos_token_id=None,
            disable_compile=True,
        )


def load_worker(config: WorkerConfig, send: Send) -> ModelWorker:
    """Weights and tokenizer from a prepared model's folder."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        config.model.path, dtype=torch.float32, local_files_only=True
    )
    return ModelWorker(model.to(resolve_device(config.device)).eval(), config, send)


def main(channel: ChildChannel, config: WorkerConfig) -> None:
    """Load, say so, and generate until the server goes."""
    channel.progress(0.2, "Loading the weights")
    worker = load_worker(config, channel.send)
    channel.ready(describe_worker(str(worker.model.device), worker.model.dtype))
    threading.Thread(target=_listen, args=(channel, worker), name="listen", daemon=True).start()
    worker.run()


def _listen(channel: ChildChannel, worker: ModelWorker) -> None:
    """Take messages while the model computes."""
    decode = msgspec.msgpack.Decoder(ToWorker).decode
    try:
        while True:
            take_message(decode(channel.receive()), worker)
    except ParentGone:
        worker.workload.close()
        worker.gate.close()


def take_message(message: ToWorker, worker: ModelWorker) -> None:
    """Do what the server says. Quick: the model may be computing meanwhile."""
    match message:
        case AddRequest():
            worker.workload.add(_row(message, worker))
        case AbortRequest(request_id):
            ended = worker.workload.abort(request_id)
            worker.gate.nudge()
            if ended is not None:
                worker.send(WorkerUpdate(ended=[ended], num_waiting=worker.workload.num_waiting))
        case _:
            work_gate(worker.gate, message)


def _row(request: AddRequest, worker: ModelWorker) -> Row:
    return Row(
        request,
        OutputText(worker.codec.detokenizer(request.prompt_ids), request.sampling.stop),
        most_tokens=min(request.sampling.max_tokens, worker.config.max_model_len - len(request.prompt_ids)),
    )
