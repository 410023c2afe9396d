"""Both sides of every step inside one ``model.generate()`` call.

``model.generate()`` is one long call that gives its tokens at the end. Two of its own seams make
it visible: a forward pre-hook, called before every forward pass, waits at the gate and measures
what goes in; a stopping criterion, called after every token, sends the tokens on and says which
rows are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers import StaticCache, StoppingCriteria

from backends.gate import Gate
from backends.generate.workload import Row, Workload
from backends.records import KVDelta, Phase, ScheduledRow, StepRecord
from backends.worker_messages import WorkerUpdate


class NobodyWaits(Exception):
    """Every row of the batch has ended while it was held: ``model.generate()`` is left."""


class BatchSteps(StoppingCriteria):
    """One batch on its way through ``model.generate()``."""

    eos_token_id = None
    """That there is such an attribute makes ``generate`` give padding to rows that are done."""

    def __init__(
        self,
        batch: list[Row],
        *,
        cache: StaticCache,
        workload: Workload,
        gate: Gate,
        first_turn: AbstractContextManager[bool],
        first_step_id: int,
        eos_token_ids: frozenset[int],
        send: Callable[[WorkerUpdate], None],
    ) -> None:
        """``first_turn`` is the permission for the first step, granted when the batch was made."""
        self.next_step_id = first_step_id
        self._first_step_id = first_step_id
        self._batch = batch
        self._cache = cache
        self._workload = workload
        self._gate = gate
        self._turn: AbstractContextManager[bool] | None = first_turn
        self._eos_token_ids = eos_token_ids
        self._send = send
        longest = max(len(row.request.prompt_ids) for row in batch)
        self._padding = [longest - len(row.request.prompt_ids) for row in batch]

    @property
    def _is_prefill(self) -> bool:
        return self.next_step_id == self._first_step_id

    def before_forward(self, _: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        """Wait for permission, then note what goes in. Raises ``NobodyWaits``."""
        if self._turn is None:
            self._turn = self._gate.turn(self._workload.has_live_rows)
            if not self._turn.__enter__():
                self._end_turn()
                raise NobodyWaits
        self._waiting_ids = self._workload.begin_step()
        self._was_live = [row.live for row in self._batch]
        self._num_filled_before = int(self._cache.get_seq_length())
        self._input_shape = list(inputs["input_ids"].shape)
        self._start_time = time.monotonic()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """The token of every row is chosen: pass it on. Returns which rows are done ``[batch]``."""
        token_ids = input_ids[:, -1].tolist()
        duration = time.monotonic() - self._start_time
        with self._workload.step_end() as step_end:
            for row, token_id in zip(self._batch, token_ids, strict=True):
                if row.live:
                    row.take(token_id, self.next_step_id, self._eos_token_ids)
            done = [not row.live for row in self._batch]
            step_end.tell(self._batch)
        self._send(
            WorkerUpdate(
                records=[self._record(duration, step_end.finished_ids)],
                tokens=step_end.tokens,
                ended=step_end.ended,
                num_waiting=self._workload.num_waiting,
            )
        )
        self.next_step_id += 1
        self._end_turn()
        return torch.tensor(done, device=input_ids.device)

    def _end_turn(self) -> None:
        assert self._turn is not None
        self._turn.__exit__(None, None, None)
        self._turn = None

    def _record(self, duration: float, finished_ids: list[str]) -> StepRecord:
        rows = [self._scheduled_row(place) for place in range(len(self._batch))]
        num_filled = int(self._cache.get_seq_length())
        return StepRecord(
            step_id=self.next_step_id,
            start_time=self._start_time,
            duration=duration,
            rows=rows,
            input_shape=self._input_shape,
            num_padding_tokens=sum(self._padding) if self._is_prefill else 0,
            attention_pairs=sum(
                row.num_scheduled_tokens * (row.num_computed_tokens + row.num_scheduled_tokens)
                for row in rows
            ),
            waiting_ids=self._waiting_ids,
            admitted_ids=[row.request_id for row in self._batch] if self._is_prefill else [],
            finished_ids=finished_ids,
            kv=KVDelta(
                filled_slots={
                    row.request_id: num_filled - padding
                    for row, padding in zip(self._batch, self._padding, strict=True)
                },
                reserved_slots={row.request_id: self._cache.get_max_length() for row in self._batch},
            ),
        )

    def _scheduled_row(self, place: int) -> ScheduledRow:
        """Padding is neither scheduled nor counted as computed."""
        phase = Phase.PREFILL if self._is_prefill else Phase.DECODE
        padding, width = self._padding[place], self._input_shape[1]
        return ScheduledRow(
            request_id=self._batch[place].request_id,
            phase=phase if self._was_live[place] else Phase.FINISHED,
            num_scheduled_tokens=width - padding if self._is_prefill else width,
            num_computed_tokens=0 if self._is_prefill else self._num_filled_before - padding,
        )
