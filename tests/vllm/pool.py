"""The block tables that a trace tells of, and what must be true of them after every record."""

from __future__ import annotations

from collections import Counter

from backends.records import AnyRecord, KVChanged, KVDelta, StepRecord, TraceHeader


class PoolBooks:
    """Folds deltas; each must fit what was told before."""

    def __init__(self, num_blocks: int, block_size: int, null_block: int) -> None:
        self.num_usable = num_blocks - 1
        self.block_size = block_size
        self.null_block = null_block
        self.tables: dict[str, list[int]] = {}
        self.ref_counts: dict[int, int] = {}
        self.cached: set[int] = set()
        self.num_free = self.num_usable
        self.most_shared = 0

    @classmethod
    def of(cls, header: TraceHeader) -> PoolBooks:
        engine = header.engine
        assert engine.num_blocks is not None
        assert engine.block_size is not None
        assert engine.null_block is not None
        return cls(engine.num_blocks, engine.block_size, engine.null_block)

    def apply(self, record: AnyRecord) -> None:
        if isinstance(record, StepRecord | KVChanged) and record.kv is not None:
            self._take(record.kv)
            self.check(record.kv)

    def _take(self, kv: KVDelta) -> None:
        for request_id, blocks in kv.given_back.items():
            table = self.tables[request_id]
            assert set(blocks) <= set(table), "only what was taken is given back"
            self.tables[request_id] = [block for block in table if block not in blocks]
        for request_id, blocks in kv.taken.items():
            table = self.tables.setdefault(request_id, [])
            assert not set(blocks) & set(table), "no block is taken twice"
            table += blocks
        assert set(kv.evicted) <= self.cached, "only what was cached is evicted"
        self.cached -= set(kv.evicted)
        assert not set(kv.cached) & self.cached, "no block is cached twice"
        self.cached |= set(kv.cached)
        self.ref_counts |= kv.ref_counts
        assert kv.num_free is not None
        self.num_free = kv.num_free

    def check(self, kv: KVDelta) -> None:
        holders = Counter(block for table in self.tables.values() for block in table)
        assert self.null_block not in holders
        assert self.num_free == self.num_usable - len(holders)
        shared = {block: count for block, count in holders.items() if count > 1}
        assert {block: count for block, count in self.ref_counts.items() if count > 1} == shared
        self.most_shared = max([self.most_shared, *shared.values()])
        for request_id, num_filled in kv.filled_slots.items():
            assert 0 < num_filled <= len(self.tables[request_id]) * self.block_size
