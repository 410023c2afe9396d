"""What changed in vLLM's KV cache since it was last told: block tables → ``KVDelta``.

vLLM's ``KVCacheManager`` keeps a block table for each request, and a ``BlockPool`` whose blocks
count their references and carry a hash once prefix caching can find them. Looking at the requests
of a step is enough to know what the step changed: a block is taken, shared or hashed only as part
of a request's table, and it loses its hash only when it is given to a request anew::

    look() after schedule()            blocks taken (and so evicted), prefix hits, preemptions
    look() after update_from_output()  blocks given back, or hashed
    take()                             the sum of both, net

vLLM: ``vllm.v1.core.kv_cache_manager.KVCacheManager``, ``vllm.v1.core.block_pool.BlockPool``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from backends.records import KVDelta


class Block(Protocol):
    """``vllm.v1.core.kv_cache_utils.KVCacheBlock``, as far as it is read here."""

    block_id: int
    ref_cnt: int

    @property
    def block_hash(self) -> Any: ...


class BlockPool(Protocol):
    """``vllm.v1.core.block_pool.BlockPool``."""

    blocks: list[Any]

    def get_num_free_blocks(self) -> int: ...


class Table:
    """The block table of one request: it grows at its end, until it is given back whole."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_told = 0
        """Leading blocks that have been told."""
        self.num_hashed = 0
        """Leading blocks whose hash has been seen."""
        self.given_back: list[int] = []
        """Told once, and not in the table any more: to be told."""

    def give_back(self) -> None:
        self.given_back += self.blocks[: self.num_told]
        self.blocks, self.num_told, self.num_hashed = [], 0, 0


class KVWatch:
    """Costs O(what is new) for each request that is looked at."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._tables: dict[str, Table] = {}
        self._looked_at: dict[str, int] = {}
        """Request → slots that hold K and V, for those whose table may have changed."""
        self._touched: set[int] = set()
        """Blocks whose hash or reference count may have changed."""
        self._hashes: dict[int, Any] = {}
        """Block → its hash, as last told."""
        self._ref_counts: dict[int, int] = {}
        """Block → its reference count, as last told, where that is above 1."""

    def look(self, request_id: str, blocks: Sequence[Block], num_filled: int) -> None:
        """``blocks``: the request's table now, empty once it has given all back. ``num_filled``: slots
        of it that hold K and V."""
        table = self._tables.setdefault(request_id, Table())
        if not _is_beginning(table.blocks, blocks):
            self._touched.update(table.blocks)
            table.give_back()
        new = [block.block_id for block in blocks[len(table.blocks) :]]
        table.blocks += new
        self._touched.update(new)
        while table.num_hashed < len(blocks) and blocks[table.num_hashed].block_hash is not None:
            self._touched.add(table.blocks[table.num_hashed])
            table.num_hashed += 1
        self._looked_at[request_id] = num_filled

    def look_at_cached(self) -> None:
        """After a preemption: a block can have been taken and given back within one step, in no table
        that was looked at, and has lost its hash by that."""
        self._touched.update(self._hashes)

    def take(self) -> KVDelta:
        """All changes since the last call."""
        taken: dict[str, list[int]] = {}
        given_back: dict[str, list[int]] = {}
        filled_slots: dict[str, int] = {}
        for request_id, num_filled in self._looked_at.items():
            table = self._tables[request_id]
            if table.given_back:
                given_back[request_id], table.given_back = table.given_back, []
            if table.num_told < len(table.blocks):
                taken[request_id] = table.blocks[table.num_told :]
                table.num_told = len(table.blocks)
            if table.blocks:
                filled_slots[request_id] = num_filled
            else:
                del self._tables[request_id]
        cached, evicted = self._take_hashes()
        delta = KVDelta(
            num_free=self._pool.get_num_free_blocks(),
            taken=taken,
            given_back=given_back,
            ref_counts=self._take_ref_counts(),
            cached=cached,
            evicted=evicted,
            filled_slots=filled_slots,
        )
        self._looked_at.clear()
        self._touched.clear()
        return delta

    def _take_hashes(self) -> tuple[list[int], list[int]]:
        """Blocks that got a hash, and those that lost one. A block can be in both lists."""
        cached, evicted = [], []
        for block_id in sorted(self._touched):
            told, now = self._hashes.get(block_id), self._pool.blocks[block_id].block_hash
            if told == now:
                continue
            if told is not None:
                evicted.append(block_id)
                del self._hashes[block_id]
            if now is not None:
                cached.append(block_id)
                self._hashes[block_id] = now
        return cached, evicted

    def _take_ref_counts(self) -> dict[int, int]:
        changed: dict[int, int] = {}
        for block_id in sorted(self._touched):
            told, now = self._ref_counts.pop(block_id, 0), self._pool.blocks[block_id].ref_cnt
            if now > 1:
                self._ref_counts[block_id] = now
            if max(told, now) > 1 and told != now:
                changed[block_id] = now
        return changed


def _is_beginning(seen: list[int], blocks: Sequence[Block]) -> bool:
    """Is the table that was seen the beginning of this one? Its last entry tells."""
    return not seen or (len(blocks) >= len(seen) and blocks[len(seen) - 1].block_id == seen[-1])
