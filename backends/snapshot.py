"""Folding records into a snapshot: the state of an engine after any number of them.

``SnapshotBuilder`` takes one record at a time, at a cost that depends on the record and not on
how many came before. What it has folded is all in the ``Snapshot`` it gives, so a builder made
from a snapshot goes on as the first one would have:

    records 0 … k-1 ──fold──► Snapshot(version=k) ──fold records k …──► the same state as all of them

A request is in the snapshot from its ``arrived`` to its ``finished`` record. Rows of requests that
are not in flight are counted in the totals only. Of the gauges that an engine tells, the last of each
server is kept, until a new header says that the engine has started anew.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from backends.records import (
    AnyRecord,
    EngineGauges,
    KVChanged,
    KVDelta,
    RequestArrived,
    RequestFinished,
    RequestSnapshot,
    ScheduledRow,
    Snapshot,
    StepRecord,
    TokenEmitted,
    TraceHeader,
)


def attention_pairs(row: ScheduledRow) -> int:
    """Query × key pairs of one row: L² without a cache, where nothing was computed before."""
    return row.num_scheduled_tokens * (row.num_computed_tokens + row.num_scheduled_tokens)


def _server_number(gauges: EngineGauges) -> int:
    return -1 if gauges.server is None else gauges.server


class _InFlight(msgspec.Struct, kw_only=True):
    """A ``RequestSnapshot`` that can still change; the same fields."""

    arrived: RequestArrived
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    num_output_tokens: int = 0
    sum_tokens_computed: int = 0
    sum_attention_pairs: int = 0
    num_preemptions: int = 0
    running: bool = False
    blocks: list[int] = []
    filled_slots: int | None = None
    reserved_slots: int | None = None

    @classmethod
    def from_snapshot(cls, request: RequestSnapshot) -> _InFlight:
        return cls(**{**msgspec.structs.asdict(request), "blocks": list(request.blocks)})

    def freeze(self) -> RequestSnapshot:
        return RequestSnapshot(**{**msgspec.structs.asdict(self), "blocks": list(self.blocks)})


class SnapshotBuilder:
    """The state after the records applied so far."""

    def __init__(self) -> None:
        self._requests: dict[str, _InFlight] = {}
        self._next_step_id = 0
        self._num_free_blocks: int | None = None
        self._cached_blocks: set[int] = set()
        self._ref_counts: dict[int, int] = {}
        self._gauges: dict[int | None, EngineGauges] = {}
        self._totals: Counter[str] = Counter()

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> SnapshotBuilder:
        """A builder that goes on from there."""
        builder = cls()
        builder._requests = {r.arrived.request_id: _InFlight.from_snapshot(r) for r in snapshot.requests}
        builder._next_step_id = snapshot.next_step_id
        builder._num_free_blocks = snapshot.num_free_blocks
        builder._cached_blocks = set(snapshot.cached_blocks)
        builder._ref_counts = dict(snapshot.ref_counts)
        builder._gauges = {gauges.server: gauges for gauges in snapshot.gauges}
        builder._totals = Counter(snapshot.totals)
        return builder

    def snapshot(self, version: int, time: float) -> Snapshot:
        """The state now; ``version`` is the number of records it stands for."""
        return Snapshot(
            version=version,
            time=time,
            next_step_id=self._next_step_id,
            requests=[request.freeze() for request in self._requests.values()],
            num_free_blocks=self._num_free_blocks,
            cached_blocks=sorted(self._cached_blocks),
            ref_counts=dict(sorted(self._ref_counts.items())),
            gauges=sorted(self._gauges.values(), key=_server_number),
            totals=dict(sorted(self._totals.items())),
        )

    def apply(self, record: AnyRecord) -> None:
        """Fold one record in."""
        match record:
            case StepRecord():
                self._step(record)
            case KVChanged():
                self._kv(record.kv)
            case TokenEmitted():
                self._token(record)
            case RequestArrived():
                self._requests[record.request_id] = _InFlight(arrived=record)
            case RequestFinished():
                self._finish(record)
            case EngineGauges():
                self._gauges[record.server] = record
            case TraceHeader():
                self._start_anew()
            case _:  # queue samples, states: of the moment, nothing to accumulate
                pass

    def _start_anew(self) -> None:
        """A new header is a new process, with nothing in its KV cache and nothing told yet."""
        self._gauges.clear()
        self._num_free_blocks = None
        self._cached_blocks.clear()
        self._ref_counts.clear()

    def _token(self, record: TokenEmitted) -> None:
        self._totals["output_tokens"] += 1
        request = self._requests.get(record.request_id)
        if request is None:
            return
        if request.first_token_time is None:
            request.first_token_time = record.time
        request.last_token_time = record.time
        request.num_output_tokens += 1

    def _finish(self, record: RequestFinished) -> None:
        """A count that comes with the end is right, whatever was counted on the way."""
        request = self._requests.pop(record.request_id, None)
        self._totals["requests_finished"] += 1
        if request is not None and record.num_output_tokens is not None:
            self._totals["output_tokens"] += record.num_output_tokens - request.num_output_tokens

    def _step(self, record: StepRecord) -> None:
        self._next_step_id = record.step_id + 1
        self._count(record)
        for row in record.rows:
            request = self._requests.get(row.request_id)
            if request is not None:
                self._row(request, row, record.start_time)
        for request_id in (*record.preempted_ids, *record.finished_ids):
            if request_id in self._requests:
                self._requests[request_id].running = False
        for request_id in record.preempted_ids:
            if request_id in self._requests:
                self._requests[request_id].num_preemptions += 1
        if record.kv is not None:
            self._kv(record.kv)

    def _count(self, record: StepRecord) -> None:
        """What an engine does not expose is not counted, so its total is absent rather than 0."""
        self._totals["steps"] += 1
        self._totals["tokens_computed"] += sum(row.num_scheduled_tokens for row in record.rows)
        self._totals["preemptions"] += len(record.preempted_ids)
        if record.attention_pairs is not None:
            self._totals["attention_pairs"] += record.attention_pairs
        if record.num_padding_tokens is not None:
            self._totals["padding_tokens"] += record.num_padding_tokens

    @staticmethod
    def _row(request: _InFlight, row: ScheduledRow, start_time: float) -> None:
        if request.first_scheduled_time is None:
            request.first_scheduled_time = start_time
        request.running = True
        request.sum_tokens_computed += row.num_scheduled_tokens
        request.sum_attention_pairs += attention_pairs(row)

    def _kv(self, kv: KVDelta) -> None:
        if kv.num_free is not None:
            self._num_free_blocks = kv.num_free
        for request_id, blocks in kv.given_back.items():
            if request_id in self._requests:
                self._give_back(self._requests[request_id], set(blocks))
        for request_id, blocks in kv.taken.items():
            if request_id in self._requests:
                self._requests[request_id].blocks.extend(blocks)
        for request_id, slots in kv.filled_slots.items():
            if request_id in self._requests:
                self._requests[request_id].filled_slots = slots
        for request_id, slots in kv.reserved_slots.items():
            if request_id in self._requests:
                self._requests[request_id].reserved_slots = slots
        self._cached_blocks.difference_update(kv.evicted)
        self._cached_blocks.update(kv.cached)
        for block, count in kv.ref_counts.items():
            if count > 1:
                self._ref_counts[block] = count
            else:
                self._ref_counts.pop(block, None)

    @staticmethod
    def _give_back(request: _InFlight, blocks: set[int]) -> None:
        """O(the request's block table), which is what a preemption gives back anyway."""
        request.blocks = [block for block in request.blocks if block not in blocks]
        if not request.blocks:
            request.filled_slots = None
