"""Do the books balance? What went through the model, against what had to, from the records alone.

For a request that ran to its limit::

    scheduled = prompt - cached - shared + output - 1 + recomputed

Every prompt token is computed unless the prefix cache had it or a sibling sample had computed it;
every output token but the last is computed in its turn; and what a preemption took away is computed
again, unless the cache finds it when the request resumes::

    preempted here ─────────────────────┐
    computed   ████████████████████████ │ lost: 24 - 8 = 16, recomputed
    resumes    ████████░░░░░░░░░░░░░░░░░░░░
               found: 8

The terms come from different records (rows, arrivals, tokens, preemptions), so a row that is
missing, counted twice, or begins where the one before did not end, shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

import msgspec

from backends.records import (
    AnyRecord,
    FinishReason,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    StepRecord,
    TokenEmitted,
)


class Apart(StrEnum):
    """Why a request is not in the balance: its records do not tell how many tokens it must have."""

    STOPPED = "stopped"
    """The token that ended it may be in no record; what was computed after a stop string is in none."""
    ABORTED = "aborted"
    FAILED = "failed"
    IN_FLIGHT = "in flight"
    NOT_EXPOSED = "not exposed"
    """It has no row, or its first one does not tell what the prefix cache found."""


ENDED_APART = {
    FinishReason.STOP: Apart.STOPPED,
    FinishReason.ABORT: Apart.ABORTED,
    FinishReason.ERROR: Apart.FAILED,
}


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """The terms, of one request or summed over several."""

    num_requests: int
    scheduled_tokens: int
    prompt_tokens: int
    cached_tokens: int
    """Found by prefix caching: at first, and beyond what had been computed when resuming."""
    shared_tokens: int
    """Computed by a sibling sample before this one forked off it."""
    output_tokens: int
    recomputed_tokens: int
    """Lost by preemption, and not found in the cache when resuming."""

    @property
    def expected_tokens(self) -> int:
        needed = self.prompt_tokens - self.cached_tokens - self.shared_tokens
        return needed + self.output_tokens - self.num_requests + self.recomputed_tokens

    @property
    def difference(self) -> int:
        """Scheduled beyond what had to be; negative where something was not computed."""
        return self.scheduled_tokens - self.expected_tokens

    @property
    def balances(self) -> bool:
        return self.difference == 0

    @classmethod
    def sum(cls, balances: Iterable[Balance]) -> Self:
        terms = [msgspec.structs.asdict(balance) for balance in balances]
        return cls(**{name: sum(term[name] for term in terms) for name in cls.__struct_fields__})


class Books(msgspec.Struct, frozen=True, kw_only=True):
    """A trace's balance, by request id."""

    settled: dict[str, Balance]
    """Requests that ran to their limit."""
    apart: dict[str, tuple[Apart, Balance]]
    """The others, with the terms as far as the records tell them."""
    unannounced_tokens: int
    """Scheduled for requests that arrived before the trace begins."""

    @property
    def total(self) -> Balance:
        return Balance.sum(self.settled.values())

    @property
    def scheduled_tokens(self) -> int:
        """Of all steps."""
        apart = Balance.sum(balance for _, balance in self.apart.values())
        return self.total.scheduled_tokens + apart.scheduled_tokens + self.unannounced_tokens

    @property
    def balances(self) -> bool:
        """Request by request, so that a surplus of one cannot hide a lack of another."""
        return all(balance.balances for balance in self.settled.values())


def books_of(records: Iterable[AnyRecord]) -> Books:
    """The books over a trace."""
    accounts: dict[str, _Account] = {}
    unannounced = 0
    for record in records:
        match record:
            case RequestArrived():
                accounts[record.request_id] = _Account(record)
            case StepRecord():
                for request_id in record.preempted_ids:
                    if request_id in accounts:
                        accounts[request_id].preempted = True
                for row in record.rows:
                    if row.request_id in accounts:
                        accounts[row.request_id].add(row)
                    else:
                        unannounced += row.num_scheduled_tokens
            case TokenEmitted() if record.request_id in accounts:
                accounts[record.request_id].num_tokens += 1
            case RequestFinished() if record.request_id in accounts:
                accounts[record.request_id].finished = record
            case _:
                pass
    return _close(accounts, unannounced)


def _close(accounts: dict[str, _Account], unannounced: int) -> Books:
    settled: dict[str, Balance] = {}
    apart: dict[str, tuple[Apart, Balance]] = {}
    for request_id, account in accounts.items():
        why = account.apart
        if why is None:
            settled[request_id] = account.balance()
        else:
            apart[request_id] = why, account.balance()
    return Books(settled=settled, apart=apart, unannounced_tokens=unannounced)


class _Account:
    """One request, while the records are read."""

    def __init__(self, arrived: RequestArrived) -> None:
        self.arrived = arrived
        self.finished: RequestFinished | None = None
        self.preempted = False
        self.num_tokens = 0
        self._scheduled = 0
        self._cached: int | None = None
        self._shared = 0
        self._recomputed = 0
        self._num_computed = 0
        """Tokens with K and V after its last row."""

    def add(self, row: ScheduledRow) -> None:
        if self._scheduled == 0:
            self._cached = row.num_cached_tokens
            self._shared = row.num_computed_tokens - (row.num_cached_tokens or 0)
        elif self.preempted:
            self._resume(row)
        self.preempted = False
        self._scheduled += row.num_scheduled_tokens
        self._num_computed = row.num_computed_tokens + row.num_scheduled_tokens

    def _resume(self, row: ScheduledRow) -> None:
        lost = self._num_computed - row.num_computed_tokens
        self._recomputed += max(0, lost)
        if self._cached is not None:
            self._cached += max(0, -lost)  # others had computed more of the same text meanwhile

    @property
    def apart(self) -> Apart | None:
        if self.finished is None:
            return Apart.IN_FLIGHT
        if self.finished.reason in ENDED_APART:
            return ENDED_APART[self.finished.reason]
        return Apart.NOT_EXPOSED if self._cached is None or self._num_prompt_tokens is None else None

    def balance(self) -> Balance:
        counted = None if self.finished is None else self.finished.num_output_tokens
        return Balance(
            num_requests=1,
            scheduled_tokens=self._scheduled,
            prompt_tokens=self._num_prompt_tokens or 0,
            cached_tokens=self._cached or 0,
            shared_tokens=self._shared,
            output_tokens=self.num_tokens if counted is None else counted,
            recomputed_tokens=self._recomputed,
        )

    @property
    def _num_prompt_tokens(self) -> int | None:
        counted = None if self.finished is None else self.finished.num_prompt_tokens
        return self.arrived.num_prompt_tokens if counted is None else counted
