"""Scripted records for looking at the panels without a model: they obey the data model, and nothing
of them is ever shown to a user. Each function gives the records of one scene, the header first."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backends.records import (
    SCHEMA_VERSION,
    AnyRecord,
    EngineConfig,
    Exposure,
    FinishReason,
    KVDelta,
    ModelShape,
    Phase,
    QueueSample,
    RequestArrived,
    RequestFinished,
    ScheduledRow,
    Source,
    StepRecord,
    TokenEmitted,
    TraceHeader,
)

SMOLLM2 = ModelShape(
    num_layers=30,
    hidden_size=576,
    num_attention_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    num_parameters=134_515_008,
)
ALL = ("batch", "kv", "queues", "latency")


def header(
    backend: str, engine: EngineConfig, kv: Exposure, notes: dict[str, str] | None = None
) -> TraceHeader:
    measured = dict.fromkeys(ALL, Exposure.MEASURED) | {"kv": kv, "latency": Exposure.DERIVED}
    return TraceHeader(
        schema_version=SCHEMA_VERSION,
        backend=backend,
        model="SmolLM2-135M-Instruct",
        device="cpu",
        dtype="float32",
        engine=engine,
        shape=SMOLLM2,
        versions={"torch": "2.13.0", "transformers": "5.19.0"},
        hardware="scripted, no hardware",
        started_at="2025-01-01T00:00:00+00:00",
        start_time=1000.0,
        measured=measured,
        notes=notes or {},
    )


@dataclass
class Job:
    """One request of a script."""

    arrival: float
    prompt: int
    answer: int
    stream: bool = True
    id: str = ""
    seat: int = 0
    done: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    abort_after: int | None = None
    admitted: bool = False
    cached: int = 0

    @property
    def length(self) -> int:
        return self.prompt + self.done


class Stage:
    """A clock, seats and the records so far."""

    def __init__(self, opening: TraceHeader, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.now = opening.start_time + 1
        self.records: list[AnyRecord] = [opening]
        self.step_id = 0
        self.seats: dict[str, int] = {}
        self.numbers = 0

    def arrive(self, job: Job, time: float) -> None:
        self.numbers += 1
        job.id = f"req-{self.numbers:04d}"
        job.seat = next(n for n in range(10_000) if n not in self.seats.values())
        self.seats[job.id] = job.seat
        self.emit(
            RequestArrived(
                request_id=job.id,
                seat=job.seat,
                num_prompt_tokens=job.prompt,
                max_tokens=job.answer,
                source=Source.CHAT if job.seat == 0 else Source.API,
                stream=job.stream,
                time=time,
            )
        )

    def finish(self, job: Job, reason: FinishReason) -> None:
        self.seats.pop(job.id)
        self.emit(RequestFinished(request_id=job.id, reason=reason, time=self.now))

    def step(self, rows: list[ScheduledRow], duration: float, **fields: Any) -> None:
        start = self.now
        self.now += duration
        record = StepRecord(
            step_id=self.step_id,
            start_time=start,
            duration=duration,
            rows=rows,
            attention_pairs=sum(
                r.num_scheduled_tokens * (r.num_computed_tokens + r.num_scheduled_tokens) for r in rows
            ),
            **fields,
        )
        self.step_id += 1
        self.emit(record)
        self.now += 0.0007

    def token(self, job: Job) -> None:
        self.emit(TokenEmitted(request_id=job.id, index=job.done, step_id=self.step_id - 1, time=self.now))
        job.done += 1

    def emit(self, record: AnyRecord) -> None:
        self.records.append(record)


def naive(jobs: list[Job], batch_size: int = 4, pace: float = 1.0) -> list[AnyRecord]:
    """Two pools, no cache: streams refill at every step, whole answers run until all are done."""
    engine = EngineConfig(max_model_len=1024, batch_size=batch_size)
    note = "There is no KV cache: every step computes all tokens of every row again."
    stage = Stage(header("naive", engine, Exposure.DERIVED, {"kv": note}))
    todo = sorted(jobs, key=lambda job: job.arrival)
    origin = stage.now
    pools: dict[str, list[Job]] = {"streaming": [], "whole": []}
    waiting: dict[str, list[Job]] = {"streaming": [], "whole": []}
    while todo or any(pools.values()) or any(waiting.values()):
        if not any(pools.values()) and not any(waiting.values()):
            stage.now = max(stage.now, origin + todo[0].arrival)
        for pool in ("streaming", "whole"):
            while todo and origin + todo[0].arrival <= stage.now:
                job = todo.pop(0)
                stage.arrive(job, origin + job.arrival)
                waiting["streaming" if job.stream else "whole"].append(job)
            _naive_step(stage, pool, pools[pool], waiting, batch_size, pace)
    return stage.records


def _naive_step(
    stage: Stage, pool: str, active: list[Job], waiting: dict[str, list[Job]], places: int, pace: float
) -> None:
    queue = waiting[pool]
    if pool == "streaming" or not active:
        while queue and len(active) < places:
            active.append(queue.pop(0))
    if not active:
        return
    rows = [
        ScheduledRow(
            request_id=job.id,
            phase=Phase.FINISHED if job.done >= job.answer else Phase.DECODE if job.done else Phase.PREFILL,
            num_scheduled_tokens=job.length,
            num_computed_tokens=0,
        )
        for job in active
    ]
    width = max(job.length for job in active)
    padding = width * len(active) - sum(row.num_scheduled_tokens for row in rows)
    finished = [job for job in active if job.done + 1 >= job.answer]
    duration = pace * (0.05 + 0.0011 * width * len(active)) * (0.9 + 0.25 * stage.random.random())
    leaving = finished if pool == "streaming" else active if len(finished) == len(active) else []
    stage.step(
        rows,
        duration,
        input_shape=[len(active), width],
        num_padding_tokens=padding,
        pool=pool,
        waiting_ids=[job.id for job in queue],
        admitted_ids=[job.id for job in active if job.done == 0],
        finished_ids=[job.id for job in leaving],
    )
    for job in active:
        if job.done < job.answer:
            stage.token(job)
    gone = [job for job in active if job.abort_after is not None and job.done >= job.abort_after]
    for job in leaving:
        stage.finish(job, FinishReason.LENGTH if job.done % 2 else FinishReason.STOP)
    for job in gone:
        if job not in leaving:
            stage.finish(job, FinishReason.ABORT)
    active[:] = [job for job in active if job not in leaving and job not in gone]
    stage.emit(
        QueueSample(
            time=stage.now,
            queues={
                "incoming_queue": len(waiting["whole"]),
                "incoming_streaming_queue": len(waiting["streaming"]),
                "request_queue": 0,
                "result_queue": stage.random.choice([0, 0, 0, 1]),
            },
            streams={job.id: stage.random.choice([0, 0, 0, 1, 2]) for job in active},
            num_misdelivered=0,
        )
    )


class Blocks:
    """A pool with reference counts and prefix caching, enough of it to draw."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.size = block_size
        self.free = list(range(num_blocks))
        self.references: dict[int, int] = {}
        self.prefix: list[int] = []
        self.cached: set[int] = set()

    def grow(self, job: Job, length: int, kv: dict[str, Any]) -> bool:
        while len(job.blocks) * self.size < length:
            if not self.free:
                return False
            block = self.free.pop(0)
            if block in self.cached:
                self.cached.discard(block)
                kv["evicted"].append(block)
            self.references[block] = 1
            job.blocks.append(block)
            kv["taken"].setdefault(job.id, []).append(block)
        return True

    def share(self, job: Job, kv: dict[str, Any]) -> None:
        for block in self.prefix:
            if block not in self.references:
                self.free.remove(block)
            self.references[block] = self.references.get(block, 0) + 1
            job.blocks.append(block)
            kv["taken"].setdefault(job.id, []).append(block)
            kv["ref_counts"][block] = self.references[block]
        job.cached = len(self.prefix) * self.size

    def give_back(self, job: Job, kv: dict[str, Any]) -> None:
        for block in reversed(job.blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                del self.references[block]
                self.free.append(block)
            kv["ref_counts"][block] = self.references.get(block, 0)
        taken = kv["taken"].pop(job.id, [])
        kv["given_back"][job.id] = [block for block in job.blocks if block not in taken]
        kv["filled_slots"].pop(job.id, None)
        job.blocks = []


def paged(
    jobs: list[Job],
    num_blocks: int = 96,
    block_size: int = 16,
    max_num_seqs: int = 8,
    budget: int = 64,
    null_block: int | None = None,
) -> list[AnyRecord]:
    """Blocks, chunked prefill, prefix sharing, preemption by recompute."""
    engine = EngineConfig(
        max_model_len=1024,
        block_size=block_size,
        num_blocks=num_blocks,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        null_block=null_block,
    )
    stage = Stage(header("paged", engine, Exposure.MEASURED))
    pool = Blocks(num_blocks, block_size)
    if null_block is not None:
        pool.free.remove(null_block)
    todo = sorted(jobs, key=lambda job: job.arrival)
    origin = stage.now
    waiting: list[Job] = []
    running: list[Job] = []
    while todo or waiting or running:
        if not waiting and not running:
            stage.now = max(stage.now, origin + todo[0].arrival)
        while todo and origin + todo[0].arrival <= stage.now:
            job = todo.pop(0)
            stage.arrive(job, origin + job.arrival)
            waiting.append(job)
        _paged_step(stage, pool, waiting, running, max_num_seqs, budget)
    return stage.records


def _paged_step(
    stage: Stage, pool: Blocks, waiting: list[Job], running: list[Job], most: int, budget: int
) -> None:
    kv: dict[str, Any] = {
        "taken": {}, "given_back": {}, "ref_counts": {}, "cached": [], "evicted": [], "filled_slots": {}
    }  # fmt: skip
    rows: list[ScheduledRow] = []
    scheduled: list[tuple[Job, int]] = []
    admitted: list[str] = []
    preempted: list[str] = []
    left = budget
    for job in list(running):
        if job not in running:  # a victim by now
            continue
        take = min(job.length - job.computed, left)
        while take > 0 and not pool.grow(job, job.computed + take, kv):
            victim = running.pop()
            pool.give_back(victim, kv)
            victim.computed = victim.cached = 0
            waiting.insert(0, victim)
            preempted.append(victim.id)
            if victim is job:
                take = 0
        if take > 0 and job in running:
            scheduled.append((job, take))
            left -= take
    scheduled = [(job, take) for job, take in scheduled if job in running]
    while waiting and len(running) < most and left > 0 and not preempted:
        job = waiting[0]
        if pool.prefix and job.prompt > len(pool.prefix) * pool.size and not job.blocks:
            pool.share(job, kv)
            job.computed = job.cached
        take = min(job.length - job.computed, left)
        if len(pool.free) * pool.size < take + pool.size:
            if job.blocks:
                pool.give_back(job, kv)
                job.computed = job.cached = 0
            break
        waiting.pop(0)
        pool.grow(job, job.computed + take, kv)
        running.append(job)
        if not job.admitted:
            admitted.append(job.id)
            job.admitted = True
        scheduled.append((job, take))
        left -= take
    emitting = []
    for job, take in scheduled:
        rows.append(
            ScheduledRow(
                request_id=job.id,
                phase=Phase.PREFILL if job.computed < job.prompt and take > 1 else Phase.DECODE,
                num_scheduled_tokens=take,
                num_computed_tokens=job.computed,
                num_cached_tokens=job.cached,
            )
        )
        job.computed += take
        kv["filled_slots"][job.id] = job.computed
        if job.computed >= job.length:
            emitting.append(job)
        full = job.computed // pool.size
        for block in job.blocks[:full]:
            if block not in pool.cached:
                pool.cached.add(block)
                kv["cached"].append(block)
    done = [job for job in emitting if job.done + 1 >= job.answer]
    for job in done:
        if not pool.prefix and job.prompt >= 3 * pool.size:
            pool.prefix = job.blocks[:2]
        pool.give_back(job, kv)
    total = sum(take for _, take in scheduled)
    stage.step(
        rows,
        0.034 + 0.0011 * total + 0.012 * stage.random.random(),
        input_shape=[1, total],
        num_padding_tokens=0,
        waiting_ids=[job.id for job in waiting],
        admitted_ids=admitted,
        preempted_ids=preempted,
        finished_ids=[job.id for job in done],
        kv=KVDelta(num_free=len(pool.free), **kv),
    )
    for job in emitting:
        stage.token(job)
    for job in done:
        running.remove(job)
        stage.finish(job, FinishReason.STOP)
    stage.emit(
        QueueSample(
            time=stage.now,
            queues={"waiting": len(waiting), "running": len(running)},
            streams={job.id: stage.random.choice([0, 0, 1]) for job in running},
        )
    )


def static_batch(groups: list[list[Job]], room: int = 160) -> list[AnyRecord]:
    """model.generate on a static batch: reserved KV, finished rows stay until the longest is done."""
    engine = EngineConfig(max_model_len=1024, batch_size=4)
    stage = Stage(header("generate", engine, Exposure.MEASURED))
    for group in groups:
        for job in group:
            stage.arrive(job, stage.now)
        width = max(job.prompt for job in group)
        for index in range(max(job.answer for job in group)):
            first = index == 0
            rows = [
                ScheduledRow(
                    request_id=job.id,
                    phase=Phase.PREFILL
                    if first
                    else Phase.FINISHED
                    if job.done >= job.answer
                    else Phase.DECODE,
                    num_scheduled_tokens=job.prompt if first else 1,
                    num_computed_tokens=0 if first else job.length - 1,
                )
                for job in group
            ]
            last = index == max(job.answer for job in group) - 1
            stage.step(
                rows,
                (0.24 if first else 0.11) * (0.9 + 0.2 * stage.random.random()),
                input_shape=[len(group), width if first else 1],
                num_padding_tokens=sum(width - job.prompt for job in group) if first else 0,
                pool="static",
                admitted_ids=[job.id for job in group] if first else [],
                finished_ids=[job.id for job in group] if last else [],
                kv=KVDelta(
                    reserved_slots={job.id: room + 40 * (n % 2) for n, job in enumerate(group)}
                    if first
                    else {},
                    filled_slots={job.id: job.length for job in group},
                ),
            )
            for job in group:
                if job.done < job.answer:
                    stage.token(job)
        for job in group:
            stage.finish(job, FinishReason.LENGTH)
        stage.now += 1.5
    return stage.records


def two_prompts() -> list[AnyRecord]:
    """The example of the article: two prompts of four tokens, 22 steps, [2, 4] to [2, 25]."""
    return naive([Job(0, 4, 22), Job(0, 4, 22)])


def busy_naive() -> list[AnyRecord]:
    streams = [
        Job(0, 12, 40),
        Job(0.4, 31, 52),
        Job(1.2, 7, 18),
        Job(2.2, 44, 60),
        Job(3.1, 9, 33),
        Job(4.5, 22, 40, abort_after=15),
    ]
    later = [Job(9 + n * 1.1, 8 + 7 * n, 20 + 5 * n) for n in range(6)]
    whole = [Job(2.0, 10, 8, stream=False), Job(2.0, 14, 24, stream=False), Job(2.1, 6, 16, stream=False)]
    return naive([*streams, *later, *whole])


def one_request() -> list[AnyRecord]:
    return naive([Job(0, 21, 48)])


def busy_paged() -> list[AnyRecord]:
    jobs = [Job(n * 0.55, 20 + (n * 37) % 90, 30 + (n * 53) % 120) for n in range(14)]
    jobs[0] = Job(0, 64, 24)
    return paged(jobs, num_blocks=48)


def crowd(number: int = 300) -> list[AnyRecord]:
    generator = random.Random(3)
    jobs = [
        Job(generator.expovariate(8) + n / 9, generator.randint(8, 120), generator.randint(6, 60))
        for n in range(number)
    ]
    return paged(jobs, num_blocks=4000, max_num_seqs=32, budget=256)


def null_block() -> list[AnyRecord]:
    """As vLLM shows itself: block 0 is its own, 11 of 32 slots are for the requests."""
    jobs = [Job(n * 0.5, 40 + 9 * n, 30 + 7 * n) for n in range(5)]
    return paged(jobs, num_blocks=12, block_size=32, null_block=0)


def large_pool(num_blocks: int) -> list[AnyRecord]:
    """A handful of requests at a time in a realistic pool."""
    jobs = [Job(n * 1.3, 90 + (n * 131) % 700, 60 + (n * 53) % 90) for n in range(24)]
    return paged(jobs, num_blocks=num_blocks, budget=512, null_block=0)


def static_groups() -> list[AnyRecord]:
    return static_batch(
        [
            [Job(0, 12, 24), Job(0, 31, 9), Job(0, 7, 40), Job(0, 18, 16)],
            [Job(0, 25, 30), Job(0, 9, 12), Job(0, 14, 44)],
        ]
    )


SCENES: dict[str, Callable[[], list[AnyRecord]]] = {
    "naive": busy_naive,
    "one": one_request,
    "pair": two_prompts,
    "paged": busy_paged,
    "crowd": crowd,
    "generate": static_groups,
    "null": null_block,
    "pool-2800": lambda: large_pool(2800),
    "pool-10000": lambda: large_pool(10_000),
    "pool-60000": lambda: large_pool(60_000),
}
