"""The forward pass, in a process of its own: strings in, one token each out, nothing kept.

Each step tokenizes every prompt string anew, pads the batch to its longest row, and runs all of
it through the model with ``use_cache=False``. For a prompt of 4 tokens that is ``[1, 4]``, then
``[1, 5]``, then ``[1, 6]`` …: to make one new token, everything before it is computed again.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from backends.engine_child import ChildChannel, ParentGone
from backends.naive.messages import ForwardBatch, RowResult, SequenceInput, StepResult, WorkerConfig
from backends.torch_worker import describe_worker, resolve_device

REPLACEMENT = "\ufffd"
"""What a decoder gives for bytes that are not (yet) a character."""
MOST_TOKENS_OF_A_CHARACTER = 4
"""A UTF-8 character has at most four bytes, so at most four tokens."""


@dataclass(frozen=True)
class Batch:
    """What goes into the model: ids and mask ``[batch, longest]``, padded on the left."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor

    @property
    def position_ids(self) -> torch.Tensor:
        """Positions that do not count the padding ``[batch, longest]``."""
        return (self.attention_mask.cumsum(dim=1) - 1).clamp(min=0)


class ModelWorker:
    """A model and its tokenizer, and no memory of earlier steps."""

    def __init__(self, model: Any, tokenizer: Any, eos_token_ids: list[int]) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        # The next token is read from the last position, so the last position must be a real token:
        # the padding goes to the left.
        self.tokenizer.padding_side = "left"
        if self.tokenizer.pad_token_id is None:  # any id will do: the mask hides it
            self.tokenizer.pad_token_id = eos_token_ids[0] if eos_token_ids else 0
        self._eos_token_ids = frozenset(eos_token_ids)
        self._special_ids = frozenset(tokenizer.all_special_ids)

    @torch.inference_mode()
    def generate_forward_batch(self, call: ForwardBatch, request_queue_depth: int = 0) -> StepResult:
        """One new token for every sequence of ``call``."""
        started = time.monotonic()
        batch = self.tokenize(call.sequences)
        logits = self.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            use_cache=False,
        ).logits[:, -1, :]  # [batch, vocab]
        temperatures = [sequence.temperature for sequence in call.sequences]
        token_ids = sample(logits, temperatures).tolist()
        rows = [
            self._row_result(sequence, ids[mask.bool()].tolist(), token_id)
            for sequence, ids, mask, token_id in zip(
                call.sequences, batch.input_ids, batch.attention_mask, token_ids, strict=True
            )
        ]
        return StepResult(
            call_id=call.call_id,
            start_time=started,
            duration=time.monotonic() - started,
            input_shape=list(batch.input_ids.shape),
            rows=rows,
            request_queue_depth=request_queue_depth,
        )

    def tokenize(self, sequences: list[SequenceInput]) -> Batch:
        """Strings → ids, padded to the longest. Tokens that are not yet a whole character cannot
        be written into the string; their ids ride along behind it."""
        ids = [self.tokenizer(sequence.text)["input_ids"] + sequence.pending_ids for sequence in sequences]
        padded = self.tokenizer.pad({"input_ids": ids}, padding=True, return_tensors="pt")
        return Batch(
            padded["input_ids"].to(self.model.device), padded["attention_mask"].to(self.model.device)
        )

    def _row_result(self, sequence: SequenceInput, ids: list[int], token_id: int) -> RowResult:
        pending_ids = [*sequence.pending_ids, token_id]
        added = self._text_added(ids, len(sequence.pending_ids), token_id)
        if added.endswith(REPLACEMENT) and len(pending_ids) < MOST_TOKENS_OF_A_CHARACTER:
            added = ""
        else:
            pending_ids = []
        return RowResult(
            sequence_id=sequence.sequence_id,
            num_tokens=len(ids),
            token_id=token_id,
            is_eos=token_id in self._eos_token_ids,
            new_text="" if token_id in self._special_ids else added,
            text=sequence.text + added,
            pending_ids=pending_ids,
        )

    def _text_added(self, ids: list[int], num_pending: int, token_id: int) -> str:
        """The text that ``token_id``, with the pending ids before it, adds to the string: decoded
        in its context, since a token's text can depend on its neighbours, with that cut off."""
        before = self._decode(ids[: len(ids) - num_pending])
        return self._decode([*ids, token_id])[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text


def sample(logits: torch.Tensor, temperatures: list[float]) -> torch.Tensor:
    """Logits ``[batch, vocab]`` → token ids ``[batch]``: softmax at each row's temperature, then
    one draw; the most likely token where the temperature is 0."""
    temperature = torch.tensor(temperatures, device=logits.device).unsqueeze(1)  # [batch, 1]
    greedy = logits.argmax(dim=-1)
    probabilities = torch.softmax(logits.float() / temperature.clamp(min=1e-5), dim=-1)
    drawn = torch.multinomial(probabilities, num_samples=1).squeeze(1)
    return torch.where(temperature.squeeze(1) == 0, greedy, drawn)


def load_worker(config: WorkerConfig, device: str) -> ModelWorker:
    """Weights and tokenizer from a prepared model's folder."""
    disable_progress_bar()  # type: ignore[no-untyped-call]  # progress goes through the channel
    model: Any = AutoModelForCausalLM.from_pretrained(
        config.model_path, dtype=torch.float32, local_files_only=True
    )
    # The very file that the server counts with: AutoTokenizer may build another one from it.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(config.model_path, local_files_only=True)
    return ModelWorker(model.to(device), tokenizer, config.eos_token_ids)


def main(channel: ChildChannel, config: WorkerConfig) -> None:
    """The worker process: take a call from the request queue, compute, send the result."""
    device = resolve_device(config.device)
    channel.progress(0.2, "Loading the weights")
    worker = load_worker(config, device)
    channel.ready(describe_worker(device, worker.model.dtype))
    request_queue: queue.Queue[ForwardBatch | None] = queue.Queue()
    threading.Thread(target=_fill, args=(channel, request_queue), name="request-queue", daemon=True).start()
    while (call := request_queue.get()) is not None:
        channel.send(worker.generate_forward_batch(call, request_queue.qsize()))


def _fill(channel: ChildChannel, request_queue: queue.Queue[ForwardBatch | None]) -> None:
    """Move calls from the pipe to the request queue as they come, so that its depth can be seen."""
    decode = msgspec.msgpack.Decoder(ForwardBatch).decode
    try:
        while True:
            request_queue.put(decode(channel.receive()))
    except ParentGone:
        request_queue.put(None)
