"""How much of the KV cache that was set aside held nothing, summed over the steps.

After each step every request holds slots: the run reserved for it, or its blocks times the block
size. Some of them hold K and V of its tokens, the others wait for tokens that may never come::

    step 0   ████░░░░░░░░░░░░    4 of 16
    step 1   █████░░░░░░░░░░░    5 of 16        waste = 1 - (4 + 5 + 6) / (16 + 16 + 16)
    step 2   ██████░░░░░░░░░░    6 of 16

A block that several requests share counts for each of them, in both sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from backends.records import AnyRecord, KVChanged, KVDelta, StepRecord, TraceHeader


class SlotSteps:
    """The two sums, over the requests of one run."""

    def __init__(self, request_ids: Collection[str], block_size: int | None) -> None:
        self._request_ids = frozenset(request_ids)
        self._block_size = block_size
        self._num_blocks: Counter[str] = Counter()
        self._filled: dict[str, int] = {}
        self.reserved = 0
        self.filled = 0

    def apply(self, record: AnyRecord) -> None:
        match record:
            case StepRecord() if record.kv is not None:
                self._change(record.kv)
                self._count(record.kv)
            case KVChanged():
                self._change(record.kv)
            case TraceHeader():  # a new process, with nothing in its KV cache
                self._num_blocks.clear()
                self._filled.clear()
            case _:
                pass

    @property
    def waste(self) -> float | None:
        """1 - filled / reserved; ``None`` where no slots were told."""
        return 1 - self.filled / self.reserved if self.reserved else None

    def _change(self, kv: KVDelta) -> None:
        for request_id, blocks in kv.taken.items():
            self._num_blocks[request_id] += len(blocks)
        for request_id, blocks in kv.given_back.items():
            self._num_blocks[request_id] -= len(blocks)
        self._filled.update(kv.filled_slots)

    def _count(self, kv: KVDelta) -> None:
        """Reservations are told anew in each step, blocks as changes."""
        if kv.reserved_slots or self._block_size is None:
            held = kv.reserved_slots
        else:
            held = {name: count * self._block_size for name, count in self._num_blocks.items() if count}
        for request_id in self._request_ids & held.keys():
            self.reserved += held[request_id]
            self.filled += min(self._filled.get(request_id, 0), held[request_id])


def kv_waste(
    records: Iterable[AnyRecord], request_ids: Collection[str], block_size: int | None
) -> float | None:
    """Over a whole run."""
    sums = SlotSteps(request_ids, block_size)
    for record in records:
        sums.apply(record)
    return sums.waste
