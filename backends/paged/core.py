"""The engine itself: schedule → run → sample → update → record. No process, no thread, no gate."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import torch

from backends.base import sample_id
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
    """What the core knows of one sample of a request, besides its tokens."""

    added: AddRequest
    sequence: Sequence
    index: int
    """Which of the request's samples."""
    draw: Draw
    output: OutputText
    most_tokens: int
    """``max_tokens``, or less where the model's limit comes first."""

    @property
    def sample_indices(self) -> range:
        """Its own, and those of the samples that have not forked off it yet."""
        return range(self.index, self.index + self.sequence.num_places)


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
        sequence = Sequence.of(request.request_id, request.prompt_ids, request.cache_salt)
        sequence.num_forks = request.sampling.n - 1
        self._requests[request.request_id] = self._request(request, sequence, 0)
        self.scheduler.add(sequence)

    def abort(self, request_id: str) -> WorkerUpdate:
        """Forget a request, all its samples, between two steps; their blocks are free at once."""
        samples = [r for r in self._requests.values() if r.added.request_id == request_id]
        held_blocks = any(request.sequence.block_table for request in samples)
        ended = []
        for request in samples:
            ended += [sample_id(request_id, index) for index in request.sample_indices]
            self.scheduler.finish(request.sequence)
            del self._requests[request.sequence.request_id]
        return WorkerUpdate(
            records=[KVChanged(time=time.monotonic(), kv=self._kv_delta())] if held_blocks else [],
            ended=[Ended(request_id=name, reason=FinishReason.ABORT) for name in ended],
            num_waiting=len(self.scheduler.waiting),
        )

    def step(self) -> WorkerUpdate:
        """One forward pass, and everything that follows from it."""
        start_time = time.monotonic()
        output, result = self._advance()
        record = self._record(output, result, start_time)
        self.next_step_id += 1
        return WorkerUpdate(
            records=[record],
            tokens=result.tokens,
            ended=result.ended,
            num_waiting=len(self.scheduler.waiting),
        )

    def _advance(self) -> tuple[SchedulerOutput, StepResult]:
        """Schedule, run, sample, update: a step but for its record."""
        output = self.scheduler.schedule()
        logits = self.runner.run(output)
        self.scheduler.update(output)
        result = StepResult()
        for request, choice in self._choose(output, logits):
            self._take_token(request, choice, result)
        return output, result

    def _request(self, added: AddRequest, sequence: Sequence, index: int) -> Request:
        sampling = added.sampling
        seed = sampling.seed if sampling.seed is None or index == 0 else f"{sampling.seed}/{index}"
        return Request(
            added,
            sequence,
            index,
            Draw(sampling, random.Random(seed)),
            OutputText(self.codec.detokenizer(added.prompt_ids), sampling.stop),
            most_tokens=min(sampling.max_tokens, self.limits.max_model_len - len(added.prompt_ids)),
        )

    def _fork(self, request: Request) -> list[Request]:
        """The prompt is computed: the request's further samples go on from it, sharing its blocks."""
        siblings = []
        for index in list(request.sample_indices)[1:]:
            name = sample_id(request.added.request_id, index)
            sequence = Sequence.of(name, request.added.prompt_ids, request.added.cache_salt)
            self.scheduler.fork(request.sequence, sequence)
            self._requests[name] = self._request(request.added, sequence, index)
            siblings.append(self._requests[name])
        return siblings

    def _choose(self, output: SchedulerOutput, logits: torch.Tensor) -> list[tuple[Request, Choice]]:
        """A token for every row that reached its last one; for each sample, where it forks there."""
        requests: list[Request] = []
        logit_rows: list[int] = []
        for index, row in enumerate(row for row in output.rows if row.samples):
            request = self._requests[row.sequence.request_id]
            samples = [request, *self._fork(request)]
            requests += samples
            logit_rows += [index] * len(samples)
        if len(requests) > len(logits):  # copied only where samples fork
            logits = logits[logit_rows]
        choices = sample(logits, [request.draw for request in requests])
        return list(zip(requests, choices, strict=True))

    def _take_token(self, request: Request, choice: Choice, result: StepResult) -> None:
        """Append the token, unless it ends the text, and finish the sample where it ends."""
        sequence = request.sequence
        if choice.token_id in self.limits.eos_token_ids and not request.draw.sampling.ignore_eos:
            self._finish(request, FinishReason.STOP, request.output.finish(), result)
            return
        text = request.output.push(choice.token_id)
        sequence.token_ids.append(choice.token_id)
        at_limit = sequence.num_output_tokens >= request.most_tokens
        if at_limit and not request.output.stopped:
            text += request.output.finish()
        result.tokens.append(
            Token(
                request_id=sequence.request_id,
                index=sequence.num_output_tokens - 1,
                step_id=self.next_step_id,
                token_id=choice.token_id,
                text=text,
                logprob=choice.logprob,
                top_logprobs=choice.top_logprobs,
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
