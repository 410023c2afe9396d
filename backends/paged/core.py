"""The engine itself: schedule → run → sample → update → record. No process, no thread, no gate."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import torch

from backends.paged.block_pool import BlockPool
from backends.paged.model_runner import ModelRunner
from backends.paged.sampler import Choice, Draw, sample
from backends.paged.scheduler import ScheduledSequence, Scheduler, SchedulerOutput
from backends.paged.sequence import Sequence
from backends.records import FinishReason, KVChanged, KVDelta, Phase, ScheduledRow, StepRecord
from backends.text import OutputText, TextCodec
from backends.worker_messages import AddRequest, Ended, Token, WorkerUpdate


@dataclass(frozen=True)
class Limits:
    """What a request may reach."""

    max_model_len: int
    eos_token_ids: frozenset[int]


@dataclass(eq=False)
class Request:
    """What the core knows of a request besides its tokens."""

    sequence: Sequence
    draw: Draw
    output: OutputText
    most_tokens: int
    """``max_tokens``, or less where the model's limit comes first."""
    ignore_eos: bool


@dataclass
class StepResult:
    """Tokens and ends of a step, as they are found."""

    tokens: list[Token] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)


class EngineCore:
    """Owned by one thread."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        codec: TextCodec,
        limits: Limits,
        *,
        first_step_id: int = 0,
    ) -> None:
        self.runner = runner
        self.scheduler = scheduler
        self.codec = codec
        self.limits = limits
        self.next_step_id = first_step_id
        self._requests: dict[str, Request] = {}

    @property
    def pool(self) -> BlockPool:
        return self.scheduler.pool

    def has_work(self) -> bool:
        return self.scheduler.has_work()

    def add(self, request: AddRequest) -> None:
        """Queue a request whose prompt is shorter than ``max_model_len``."""
        sequence = Sequence.of(request.request_id, request.prompt_ids)
        room = self.limits.max_model_len - len(request.prompt_ids)
        self._requests[request.request_id] = Request(
            sequence,
            Draw(request.sampling, random.Random(request.sampling.seed)),
            OutputText(self.codec.detokenizer(request.prompt_ids), request.sampling.stop),
            most_tokens=min(request.sampling.max_tokens, room),
            ignore_eos=request.sampling.ignore_eos,
        )
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> WorkerUpdate:
        """Forget a request between two steps; its blocks are free at once."""
        request = self._requests.pop(request_id, None)
        if request is None:  # it ended while the abort was on its way
            return WorkerUpdate(num_waiting=len(self.scheduler.waiting))
        held_blocks = bool(request.sequence.block_table)
        self.scheduler.finish(request.sequence)
        records = [KVChanged(time=time.monotonic(), kv=self._kv_delta())] if held_blocks else []
        return WorkerUpdate(
            records=list(records),
            ended=[Ended(request_id=request_id, reason=FinishReason.ABORT)],
            num_waiting=len(self.scheduler.waiting),
        )

    def step(self) -> WorkerUpdate:
        """One forward pass, and everything that follows from it."""
        start_time = time.monotonic()
        output = self.scheduler.schedule()
        logits = self.runner.run(output)
        choices = self._sample(output, logits)
        self.scheduler.update(output)
        result = self._take_tokens(output, choices)
        record = self._record(output, result, start_time)
        self.next_step_id += 1
        return WorkerUpdate(
            records=[record],
            tokens=result.tokens,
            ended=result.ended,
            num_waiting=len(self.scheduler.waiting),
        )

    def _sample(self, output: SchedulerOutput, logits: torch.Tensor) -> list[Choice]:
        draws = [self._requests[row.sequence.request_id].draw for row in output.rows if row.samples]
        return sample(logits, draws)

    def _take_tokens(self, output: SchedulerOutput, choices: list[Choice]) -> StepResult:
        result = StepResult()
        sampling_rows = (row for row in output.rows if row.samples)
        for row, choice in zip(sampling_rows, choices, strict=True):
            self._take_token(self._requests[row.sequence.request_id], choice.token_id, result)
        return result

    def _take_token(self, request: Request, token_id: int, result: StepResult) -> None:
        """Append the token, unless it ends the text, and finish the request where it ends."""
        sequence = request.sequence
        if token_id in self.limits.eos_token_ids and not request.ignore_eos:
            self._finish(request, FinishReason.STOP, request.output.finish(), result)
            return
        text = request.output.push(token_id)
        sequence.token_ids.append(token_id)
        at_limit = sequence.num_output_tokens >= request.most_tokens
        if at_limit and not request.output.stopped:
            text += request.output.finish()
        result.tokens.append(
            Token(
                request_id=sequence.request_id,
                index=sequence.num_output_tokens - 1,
                step_id=self.next_step_id,
                token_id=token_id,
                text=text,
            )
        )
        if request.output.stopped or at_limit:
            reason = FinishReason.STOP if request.output.stopped else FinishReason.LENGTH
            self._finish(request, reason, "", result)

    def _finish(self, request: Request, reason: FinishReason, text: str, result: StepResult) -> None:
        self.scheduler.finish(request.sequence)
        del self._requests[request.sequence.request_id]
        result.ended.append(Ended(request_id=request.sequence.request_id, reason=reason, text=text))

    def _record(self, output: SchedulerOutput, result: StepResult, start_time: float) -> StepRecord:
        return StepRecord(
            step_id=self.next_step_id,
            start_time=start_time,
            duration=time.monotonic() - start_time,
            rows=[_row(row) for row in output.rows],
            input_shape=[1, output.num_tokens],
            num_padding_tokens=0,
            attention_pairs=sum(
                row.num_scheduled_tokens * (row.num_computed_tokens + row.num_scheduled_tokens)
                for row in output.rows
            ),
            waiting_ids=[sequence.request_id for sequence in self.scheduler.waiting],
            admitted_ids=[sequence.request_id for sequence in output.admitted],
            preempted_ids=[sequence.request_id for sequence in output.preempted],
            finished_ids=[ended.request_id for ended in result.ended],
            kv=self._kv_delta(),
        )

    def _kv_delta(self) -> KVDelta:
        return self.pool.take_changes(self.scheduler.running)


def _row(row: ScheduledSequence) -> ScheduledRow:
    return ScheduledRow(
        request_id=row.sequence.request_id,
        phase=Phase.PREFILL if row.is_prefill else Phase.DECODE,
        num_scheduled_tokens=row.num_scheduled_tokens,
        num_computed_tokens=row.num_computed_tokens,
        num_cached_tokens=row.num_cached_tokens,
    )
