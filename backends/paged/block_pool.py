"""The pool of KV-cache blocks: who has which, which are shared, and what can be found again.

A block is ``block_size`` slots for K and V of consecutive tokens. It is in exactly one place::

    plain free       nothing worth keeping in it
    cached free      full, hashed, nobody uses it: found again by prefix caching, or reused when
                     the plain ones are gone, least recently used first
    used             in ``ref_count`` ≥ 1 block tables

PagedAttention paper, section 4; vLLM: ``vllm.v1.core.block_pool.BlockPool`` and
``kv_cache_manager.KVCacheManager``.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from hashlib import blake2b

from backends.paged.sequence import Sequence
from backends.records import KVDelta


class OutOfBlocks(Exception):
    """More blocks were asked for than are free."""


class BlockPool:
    """Pure bookkeeping on integers: the tensors are ``kv_cache.KVCache``'s."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"Got {num_blocks = } and {block_size = } but both must be at least 1")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._ref_counts = [0] * num_blocks
        self._plain_free: deque[int] = deque(range(num_blocks))
        self._cached_free: OrderedDict[int, None] = OrderedDict()
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._changes = KVDelta()

    # What there is

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self._plain_free) + len(self._cached_free)

    def ref_count(self, block_id: int) -> int:
        return self._ref_counts[block_id]

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    # Growing and shrinking a block table

    def can_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Are there blocks enough for ``sequence`` to hold ``num_tokens``?"""
        return self._num_blocks_missing(sequence, num_tokens) <= self.num_free

    def grow(self, sequence: Sequence, num_tokens: int) -> list[tuple[int, int]]:
        """Give ``sequence`` the blocks it lacks to hold ``num_tokens``, one at a time.

        If the next token would be written into a block that others use too, it gets a copy of its
        own (copy on write). Returns such pairs, source and target, whose contents must be copied
        before the step. Raises ``OutOfBlocks``, and then nothing has changed.
        """
        if not self.can_grow(sequence, num_tokens):
            raise OutOfBlocks
        copies = []
        if self._writes_into_shared(sequence):
            index = sequence.num_computed_tokens // self.block_size
            source = sequence.block_table[index]
            target = self._take()
            self._drop_reference(source)
            sequence.block_table[index] = target
            self._note_given_back(sequence, [source])
            self._note_taken(sequence, [target])
            copies.append((source, target))
        missing = self.num_blocks_for(num_tokens) - len(sequence.block_table)
        taken = [self._take() for _ in range(missing)]
        sequence.block_table += taken
        self._note_taken(sequence, taken)
        return copies

    def release(self, sequence: Sequence) -> None:
        """Take all blocks of ``sequence`` back. The last ones first, so that when cached blocks
        are reused, the beginnings of texts, which are shared most, go last."""
        for block_id in reversed(sequence.block_table):
            self._drop_reference(block_id)
        self._note_given_back(sequence, sequence.block_table)
        sequence.block_table = []

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """``child`` continues the same text: it shares every block of ``parent``."""
        assert not child.block_table
        for block_id in parent.block_table:
            self._add_reference(block_id)
        child.block_table = list(parent.block_table)
        self._note_taken(child, child.block_table)

    # Prefix caching

    def find_cached(self, sequence: Sequence) -> list[int]:
        """Blocks that already hold the beginning of ``sequence``, in order.

        Full blocks only, and never all tokens: at least one must be computed to have logits.
        """
        if not self.prefix_caching:
            return []
        found = []
        for index in range((sequence.num_tokens - 1) // self.block_size):
            block_id = self._block_of.get(self._hash(sequence, index))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def can_admit(self, cached: list[int], num_tokens: int) -> bool:
        """Are there blocks enough for a sequence that begins with ``cached`` to hold ``num_tokens``?"""
        free_among_cached = sum(block_id in self._cached_free for block_id in cached)
        return self.num_blocks_for(num_tokens) - len(cached) <= self.num_free - free_among_cached

    def reuse(self, sequence: Sequence, cached: list[int]) -> None:
        """Begin ``sequence`` with blocks that ``find_cached`` found: their tokens are computed."""
        assert not sequence.block_table
        for block_id in cached:
            self._cached_free.pop(block_id, None)
            self._add_reference(block_id)
        sequence.block_table = list(cached)
        sequence.num_computed_tokens = sequence.num_cached_tokens = len(cached) * self.block_size
        self._note_taken(sequence, cached)

    def cache_full_blocks(self, sequence: Sequence, num_computed_before: int) -> None:
        """Make blocks findable that became full since ``num_computed_before`` tokens were computed."""
        if not self.prefix_caching:
            return
        first = num_computed_before // self.block_size
        for index in range(first, sequence.num_computed_tokens // self.block_size):
            block_id, block_hash = sequence.block_table[index], self._hash(sequence, index)
            if block_id not in self._hash_of and block_hash not in self._block_of:
                self._hash_of[block_id] = block_hash
                self._block_of[block_hash] = block_id
                self._changes.cached.append(block_id)

    # Telling

    def take_changes(self, sequences: Iterable[Sequence]) -> KVDelta:
        """What has changed since this was last called, and how far ``sequences`` are filled."""
        changes, self._changes = self._changes, KVDelta()
        return KVDelta(
            num_free=self.num_free,
            taken=changes.taken,
            given_back=changes.given_back,
            ref_counts=changes.ref_counts,
            cached=changes.cached,
            evicted=changes.evicted,
            filled_slots={sequence.request_id: sequence.num_computed_tokens for sequence in sequences},
        )

    @property
    def has_changes(self) -> bool:
        """Were blocks given back since ``take_changes``, outside of any step?"""
        return bool(self._changes.given_back)

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raise ``AssertionError`` unless every block is in exactly one place and all counts add up."""
        uses = Counter(block_id for sequence in sequences for block_id in sequence.block_table)
        counts = {block_id: count for block_id, count in enumerate(self._ref_counts) if count}
        assert counts == dict(uses), f"reference counts {counts} but block tables use {dict(uses)}"
        free = [*self._plain_free, *self._cached_free]
        assert len(free) == len(set(free)), f"a block is free twice: {sorted(free)}"
        assert not set(free) & set(uses), f"free and used: {sorted(set(free) & set(uses))}"
        assert len(free) + len(uses) == self.num_blocks, f"{len(free)} free + {len(uses)} used blocks"
        assert {self._block_of[value]: value for value in self._hash_of.values()} == self._hash_of
        assert set(self._cached_free) <= set(self._hash_of), "a cached free block has no hash"
        assert not set(self._plain_free) & set(self._hash_of), "a plain free block has a hash"

    # One block

    def _take(self) -> int:
        if self._plain_free:
            block_id = self._plain_free.popleft()
        else:
            block_id, _ = self._cached_free.popitem(last=False)
            del self._block_of[self._hash_of.pop(block_id)]
            self._changes.evicted.append(block_id)
        self._ref_counts[block_id] = 1
        return block_id

    def _add_reference(self, block_id: int) -> None:
        self._ref_counts[block_id] += 1
        if self._ref_counts[block_id] > 1:
            self._changes.ref_counts[block_id] = self._ref_counts[block_id]

    def _drop_reference(self, block_id: int) -> None:
        self._ref_counts[block_id] -= 1
        if self._ref_counts[block_id]:
            self._changes.ref_counts[block_id] = self._ref_counts[block_id]
            return
        if block_id in self._hash_of:
            self._cached_free[block_id] = None
        else:
            self._plain_free.append(block_id)

    def _writes_into_shared(self, sequence: Sequence) -> bool:
        """Is the block of the next token there already, and in other block tables too?"""
        index = sequence.num_computed_tokens // self.block_size
        return index < len(sequence.block_table) and self._ref_counts[sequence.block_table[index]] > 1

    def _num_blocks_missing(self, sequence: Sequence, num_tokens: int) -> int:
        missing = max(0, self.num_blocks_for(num_tokens) - len(sequence.block_table))
        return missing + self._writes_into_shared(sequence)

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        """Of all tokens up to the end of a full block: hash of the block before it, and its own."""
        hashes = sequence.block_hashes
        while len(hashes) <= index:
            start = len(hashes) * self.block_size
            tokens = array("q", sequence.token_ids[start : start + self.block_size])
            before = hashes[-1] if hashes else _root(sequence.cache_salt)
            hashes.append(blake2b(before + tokens.tobytes(), digest_size=16).digest())
        return hashes[index]

    def _note_taken(self, sequence: Sequence, block_ids: list[int]) -> None:
        if block_ids:
            self._changes.taken.setdefault(sequence.request_id, []).extend(block_ids)

    def _note_given_back(self, sequence: Sequence, block_ids: list[int]) -> None:
        if block_ids:
            self._changes.given_back.setdefault(sequence.request_id, []).extend(block_ids)


def _root(cache_salt: str | None) -> bytes:
    """What stands before the first block. Its length is that of no block's hash, so none can pass for it."""
    return b"" if cache_salt is None else blake2b(cache_salt.encode()).digest()
