"""A window into vLLM's scheduler: what every step scheduled, and what became of the blocks.

All that is known of vLLM's insides is in this file and in ``kv_watch.py``; upstream promises
nothing about it, so ``tests/vllm`` checks every field against a real engine. ``AsyncLLM`` is told
``scheduler_cls=backends.vllm_async.scheduler_tap.TappedScheduler`` and builds it in EngineCore's
process::

    EngineCore.step():  schedule() ─► execute_model() ─► update_from_output()
                           │ hold? which rows?                │ tokens, ends, blocks
                           ▼                                  ▼
                        Tap ─────────────── TapReport ──────────────► worker.py

Written against vLLM 0.32: ``vllm.v1.core.sched.scheduler.Scheduler``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
import zmq
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec

from backends.records import EngineConfig, KVChanged, Phase, ScheduledRow, StepRecord
from backends.snapshot import attention_pairs
from backends.vllm_async.hold import Hold
from backends.vllm_async.kv_watch import KVWatch
from backends.vllm_async.messages import (
    NUM_TOLD,
    FromTap,
    TapConfig,
    TapHello,
    TapLost,
    TapReport,
    ToTap,
)

logger = logging.getLogger(__name__)

LATEST_MS = 10_000
"""Milliseconds that a message may come later than a request that was sent after it."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass
class Pending:
    """A step that has been scheduled and not come back."""

    start_time: float
    rows: list[ScheduledRow]
    waiting_ids: list[str]
    admitted_ids: list[str]
    preempted_ids: list[str]


def guarded(
    hook: Callable[Concatenate[Tap, Given], None],
) -> Callable[Concatenate[Tap, Given], None]:
    """An exception in a hook would end EngineCore, and every answer with it. So the tap goes instead,
    and says why: from then on the panels say that nothing is exposed."""

    @wraps(hook)
    def careful(tap: Tap, /, *args: Given.args, **kwargs: Given.kwargs) -> None:
        if tap.is_lost:
            return
        try:
            hook(tap, *args, **kwargs)
        except Exception as error:
            logger.exception("The tap on vLLM's scheduler failed")
            tap.give_up(f"{type(error).__name__}: {error}")

    return careful


class Tap:
    """Watches one scheduler. Lives in EngineCore's thread."""

    def __init__(self, scheduler: Scheduler, config: TapConfig) -> None:
        self.is_lost = False
        self.hold = Hold()
        self._scheduler = scheduler
        self._config = config
        self._next_step_id = config.first_step_id
        self._pending: dict[int, Pending] = {}
        """Steps under way, by the identity of their ``SchedulerOutput``: more than one with
        asynchronous scheduling or pipeline parallelism."""
        self._num_heard = 0
        self._decode = msgspec.msgpack.Decoder(ToTap).decode
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.SNDHWM, 0)  # never blocks the engine, never loses a record
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(config.address)
        why_no_kv = _why_no_kv(scheduler)
        self._watch = KVWatch(scheduler.kv_cache_manager.block_pool) if why_no_kv is None else None
        self._send(TapHello(engine=_engine_config(scheduler), why_no_kv=why_no_kv))

    # Before a step

    def may_step(self) -> bool:
        """False: the engine is held, and some time has been spent waiting."""
        if self.is_lost or not self._scheduler.has_unfinished_requests():
            return True
        self._hear()
        seconds = self.hold.wait()
        if seconds:
            self._socket.poll(round(seconds * 1000) or 1)
        return not seconds or self.is_lost

    # After each call of the scheduler

    @guarded
    def added(self, request: Any) -> None:
        """``add_request()`` returned. What the server said before it holds for this request."""
        self._take_in(num_told=request.sampling_params.extra_args[NUM_TOLD])
        self._send(TapReport(seen=[_our(request.request_id)], num_waiting=self._num_waiting))

    @guarded
    def scheduled(self, output: SchedulerOutput, start_time: float) -> None:
        """``schedule()`` returned: the rows are known, and the blocks are taken."""
        if not output.total_num_scheduled_tokens:
            return
        preempted = sorted(output.preempted_req_ids or ())
        self._look((*output.num_scheduled_tokens, *preempted))
        if preempted and self._watch:
            self._watch.look_at_cached()
        if self._pending and self._watch:  # the step before is not told yet: this one's blocks would
            change = KVChanged(time=time.monotonic(), kv=self._watch.take())  # be told as its own
            self._send(TapReport(records=[change], num_waiting=self._num_waiting))
        self._pending[id(output)] = Pending(
            start_time=start_time,
            rows=list(self._rows(output)),
            waiting_ids=[_our(request.request_id) for request in self._waiting()],
            admitted_ids=[_our(new.req_id) for new in output.scheduled_new_reqs],
            preempted_ids=[_our(name) for name in preempted],
        )

    @guarded
    def updated(self, output: SchedulerOutput, chosen: dict[str, int]) -> None:
        """``update_from_output()`` returned: tokens are chosen, those that ended are gone.

        ``chosen``: engine id → tokens that the step gave it.
        """
        pending = self._pending.pop(id(output), None)
        if pending is None:  # an empty step
            return
        self._look(output.num_scheduled_tokens)
        finished = [_our(name) for name in output.num_scheduled_tokens if self._is_gone(name)]
        record = StepRecord(
            step_id=self._next_step_id,
            start_time=pending.start_time,
            duration=time.monotonic() - pending.start_time,
            rows=pending.rows,
            input_shape=[output.total_num_scheduled_tokens] if self._config.exact_shape else None,
            num_padding_tokens=0 if self._config.exact_shape else None,
            attention_pairs=sum(attention_pairs(row) for row in pending.rows),
            waiting_ids=pending.waiting_ids,
            admitted_ids=pending.admitted_ids,
            preempted_ids=pending.preempted_ids,
            finished_ids=finished,
            kv=self._watch.take() if self._watch else None,
        )
        self._next_step_id += 1
        self._send(
            TapReport(
                records=[record],
                tokens={_our(name): count for name, count in chosen.items()},
                gone=finished,
                num_waiting=self._num_waiting,
            )
        )
        self._note_idle()

    @guarded
    def aborted(self, engine_ids: list[str]) -> None:
        """``finish_requests()`` returned: these left between two steps."""
        if not engine_ids:
            return
        self._look(engine_ids)
        records = [KVChanged(time=time.monotonic(), kv=self._watch.take())] if self._watch else []
        gone = [_our(name) for name in engine_ids]
        self._send(TapReport(records=[*records], gone=gone, num_waiting=self._num_waiting))
        self._note_idle()

    def give_up(self, sentence: str) -> None:
        self.is_lost = True
        self._send(TapLost(sentence))

    # Parts of the above

    def _rows(self, output: SchedulerOutput) -> Iterator[ScheduledRow]:
        """In the order in which the scheduler took them."""
        new = {request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        known = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for name, num_scheduled in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[name]
            num_computed = new[name] if name in new else known[name]
            starts = name in new or name in cached.resumed_req_ids
            is_prefill = num_computed < request.num_prompt_tokens or num_computed + 1 < request.num_tokens
            yield ScheduledRow(
                request_id=_our(name),
                phase=Phase.PREFILL if is_prefill else Phase.DECODE,
                num_scheduled_tokens=num_scheduled,
                num_computed_tokens=num_computed,
                num_cached_tokens=num_computed if starts else 0,
            )

    def _look(self, engine_ids: Iterable[str]) -> None:
        if self._watch is None:
            return
        for name in engine_ids:
            (blocks,) = self._scheduler.kv_cache_manager.get_blocks(name).blocks
            request = self._scheduler.requests.get(name)
            self._watch.look(_our(name), blocks, request.num_computed_tokens if request else 0)

    def _is_gone(self, engine_id: str) -> bool:
        request = self._scheduler.requests.get(engine_id)
        return request is None or request.is_finished()

    def _waiting(self) -> Iterator[Any]:
        yield from self._scheduler.kv_holding_waiting
        yield from self._scheduler.waiting

    @property
    def _num_waiting(self) -> int:
        return self._scheduler.get_request_counts()[1]

    def _note_idle(self) -> None:
        if not self._scheduler.has_unfinished_requests():
            self.hold.went_idle()

    @guarded
    def _hear(self) -> None:
        self._take_in()

    def _take_in(self, num_told: int = 0) -> None:
        """What the server says; waits for the first ``num_told`` messages, which have been sent.

        Raises ``TimeoutError`` where they do not come.
        """
        while self._socket.poll(LATEST_MS if self._num_heard < num_told else 0):
            self.hold.work(self._decode(self._socket.recv()))
            self._num_heard += 1
        if self._num_heard < num_told:
            raise TimeoutError(f"{num_told} messages were sent, and only {self._num_heard} have come")

    def _send(self, message: FromTap) -> None:
        self._socket.send(msgspec.msgpack.encode(message))


class Tapped:
    """Goes in front of a scheduler class of vLLM."""

    max_num_scheduled_tokens: int
    """vLLM's token budget of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tap = Tap(self, TapConfig.from_dict(self.vllm_config.additional_config))  # type: ignore[attr-defined, arg-type]

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """A step, or an empty one while the engine is held."""
        if not self._tap.may_step():
            return self._schedule_nothing(*args, **kwargs)
        start_time = time.monotonic()
        output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
        self._tap.scheduled(output, start_time)
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        chosen = {
            output.request_id: len(output.new_token_ids)
            for of_client in outputs.values()
            for output in of_client.outputs
            if output.new_token_ids
        }
        self._tap.updated(scheduler_output, chosen)
        return outputs

    def add_request(self, request: Any) -> None:
        super().add_request(request)  # type: ignore[misc]
        self._tap.added(request)

    def finish_requests(self, *args: Any, **kwargs: Any) -> Any:
        aborted = super().finish_requests(*args, **kwargs)  # type: ignore[misc]
        self._tap.aborted([request.request_id for request in aborted])
        return aborted

    def _schedule_nothing(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """With no token to give, the scheduler still tells the worker who has left."""
        budget, self.max_num_scheduled_tokens = self.max_num_scheduled_tokens, 0
        try:
            output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.max_num_scheduled_tokens = budget
        return output


class TappedScheduler(Tapped, Scheduler):
    """For engines that wait for a step before they schedule the next."""


class TappedAsyncScheduler(Tapped, AsyncScheduler):
    """For engines that schedule the next step while one runs: vLLM's default on a GPU."""


def _our(engine_id: str) -> str:
    """vLLM puts a dash and eight characters behind the id that a request came with."""
    return engine_id.rpartition("-")[0]


def _why_no_kv(scheduler: Scheduler) -> str | None:
    """Block tables are told where there is one a request, and it only grows."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    kinds = [type(group.kv_cache_spec).__name__ for group in groups]
    if kinds != [FullAttentionSpec.__name__]:
        return f"This model's KV cache is of a kind that is not shown yet: {', '.join(kinds) or 'none'}."
    return None


def _engine_config(scheduler: Scheduler) -> EngineConfig:
    return EngineConfig(
        max_model_len=scheduler.max_model_len,
        block_size=scheduler.block_size,
        num_blocks=scheduler.cache_config.num_gpu_blocks,
        max_num_seqs=scheduler.max_num_running_reqs,
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens,
        null_block=scheduler.kv_cache_manager.block_pool.null_block.block_id,
    )
