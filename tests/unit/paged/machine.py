"""A scheduler and a pool without a model: what a step would write and read, checked on integers.

The plain twin of a KV cache is a dictionary: slot → the text up to and including the token whose K
and V lie there. A step writes such entries where the block tables say, and then every row must find
in its own slots exactly its own text. A block shared by mistake, reused too early, found by a wrong
hash or not copied on write holds somebody else's text, and is seen at once.
"""

from __future__ import annotations

from backends.paged.block_pool import BlockPool
from backends.paged.scheduler import Scheduler, SchedulerOutput
from backends.paged.sequence import Sequence, Status


class Machine:
    """Runs steps and checks, after each, all that must always hold."""

    def __init__(
        self,
        *,
        num_blocks: int = 8,
        block_size: int = 4,
        max_num_seqs: int = 4,
        budget: int = 16,
        prefix_caching: bool = True,
    ) -> None:
        self.pool = BlockPool(num_blocks, block_size, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(self.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)
        self.slots: dict[int, tuple[int, ...]] = {}
        self.limits: dict[str, int] = {}
        self.outputs: list[SchedulerOutput] = []
        self.sequences: dict[str, Sequence] = {}

    def add(self, name: str, prompt: list[int] | int, max_tokens: int = 4) -> Sequence:
        """``prompt``: token ids, or their number."""
        ids = list(range(100, 100 + prompt)) if isinstance(prompt, int) else prompt
        sequence = self.sequences[name] = Sequence.of(name, ids)
        self.limits[name] = max_tokens
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> str:
        """One step; returns its rows as a picture, such as ``"A:4 B:1"``."""
        output = self.scheduler.schedule()
        self._check_limits(output)
        self._copy(output)
        self._write(output)
        self._read(output)
        self.scheduler.update(output)
        for row in output.rows:
            if row.samples and row.sequence.status is Status.RUNNING:
                self._append(row.sequence)
        self.check()
        self.outputs.append(output)
        return " ".join(f"{row.sequence.request_id}:{row.num_scheduled_tokens}" for row in output.rows)

    def run(self, most_steps: int = 10_000) -> list[str]:
        """Steps until nothing is left to do."""
        pictures = []
        while self.scheduler.has_work():
            assert len(pictures) < most_steps, f"not done after {most_steps} steps"
            pictures.append(self.step())
        return pictures

    def abort(self, name: str) -> None:
        self.scheduler.finish(self.sequences[name])
        self.check()

    def fork(self, parent: str, child: str) -> Sequence:
        """``child`` continues ``parent``'s text by itself."""
        origin = self.sequences[parent]
        sequence = self.sequences[child] = Sequence(
            child, list(origin.token_ids[: origin.num_computed_tokens]), origin.num_prompt_tokens
        )
        self.limits[child] = self.limits[parent]
        self.scheduler.fork(origin, sequence)
        self._append(sequence)
        self.check()
        return sequence

    def check(self) -> None:
        self.pool.check_integrity(self.scheduler.sequences())

    def _append(self, sequence: Sequence) -> None:
        """The next token depends on the text and the name, as sampling with a seed would."""
        token = hash((sequence.request_id, tuple(sequence.token_ids))) % 50
        sequence.token_ids.append(token)
        if sequence.num_output_tokens >= self.limits[sequence.request_id]:
            self.scheduler.finish(sequence)

    def _check_limits(self, output: SchedulerOutput) -> None:
        assert sum(row.num_scheduled_tokens for row in output.rows) == output.num_tokens
        assert output.num_tokens <= self.scheduler.max_num_batched_tokens
        assert all(row.num_scheduled_tokens > 0 for row in output.rows)
        assert output.rows or not self.scheduler.has_work(), "a step without rows makes no progress"
        names = [row.sequence.request_id for row in output.rows]
        assert len(names) == len(set(names))

    def _copy(self, output: SchedulerOutput) -> None:
        size = self.pool.block_size
        for source, target in output.copies:
            for offset in range(size):
                if source * size + offset in self.slots:
                    self.slots[target * size + offset] = self.slots[source * size + offset]

    def _write(self, output: SchedulerOutput) -> None:
        for row in output.rows:
            start = row.num_computed_tokens
            for position in range(start, start + row.num_scheduled_tokens):
                self.slots[self._slot(row.sequence, position)] = _text(row.sequence, position)

    def _read(self, output: SchedulerOutput) -> None:
        for row in output.rows:
            for position in range(row.num_computed_tokens + row.num_scheduled_tokens):
                found = self.slots.get(self._slot(row.sequence, position))
                assert found == _text(row.sequence, position), (
                    f"{row.sequence.request_id} finds somebody else's K and V at position {position}"
                )

    def _slot(self, sequence: Sequence, position: int) -> int:
        size = self.pool.block_size
        return sequence.block_table[position // size] * size + position % size


def _text(sequence: Sequence, position: int) -> tuple[int, ...]:
    return tuple(sequence.token_ids[: position + 1])
