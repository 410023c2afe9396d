"""The same workload on two engines: what each sets aside for K and V, and what it fills of that.

Both figures come from the records alone, as on the screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from backends.base import SamplingParams
from backends.generate.messages import STATIC
from backends.generate.messages import WorkerConfig as GenerateConfig
from backends.generate.model_worker import load_worker, take_message
from backends.metrics import TimelineReducer
from backends.models.build import build
from backends.models.locate import locate
from backends.paged.config import WorkerConfig as PagedConfig
from backends.paged.worker import build_core
from backends.records import AnyRecord, EngineConfig, RequestArrived, Source, TraceHeader
from backends.worker_messages import AddRequest, WorkerUpdate
from tests.factories import header
from tests.tiny_models import make_tiny_model

MAX_MODEL_LEN = 512
OUTPUTS = [20, 45, 70, 95, 33, 58, 83, 108]
"""Answers of mixed length behind prompts of about 250 tokens: texts of about 300."""


def workload() -> list[AddRequest]:
    return [
        AddRequest(
            request_id=str(number),
            prompt_ids=[10 + (number + position) % 40 for position in range(240 + 3 * number)],
            sampling=SamplingParams(max_tokens=length, temperature=0, ignore_eos=True),
            mode=STATIC,
        )
        for number, length in enumerate(OUTPUTS)
    ]


def wasted_share(records: Iterable[AnyRecord], engine: EngineConfig) -> float:
    """Slots set aside and never filled, of all set aside, when each text was at its longest."""
    reducer = TimelineReducer()
    start: TraceHeader = header(engine=engine)
    arrivals = [
        RequestArrived(
            request_id=request.request_id,
            seat=0,
            num_prompt_tokens=len(request.prompt_ids),
            max_tokens=request.sampling.max_tokens,
            source=Source.WORKLOAD,
            stream=False,
            time=0.0,
        )
        for request in workload()
    ]
    for record in (start, *arrivals, *records):
        reducer.apply(record)
    reserved = [timeline.reserved_slots or 0 for timeline in reducer.timelines.values()]
    filled = [timeline.filled_slots or 0 for timeline in reducer.timelines.values()]
    assert min(filled) > 250
    return 1 - sum(filled) / sum(reserved)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    make_tiny_model(folder / "llama", "llama", tokenizer="words", max_positions=MAX_MODEL_LEN)
    return folder


def test_blocks_waste_less_than_a_twentyfifth(folder: Path) -> None:
    model = build(locate(str(folder / "llama")), folder / "cache", lambda *_: None)
    core = build_core(
        PagedConfig(
            model=model,
            cache_dir=str(folder),
            device="cpu",
            dtype="float32",
            kernels="fast",
            max_model_len=MAX_MODEL_LEN,
            block_size=16,
            num_blocks=200,
            max_num_seqs=8,
            max_num_batched_tokens=256,
            memory_share=0.5,
        )
    )
    records: list[AnyRecord] = []
    for request in workload():
        core.add(request)
    while core.has_work():
        records += core.step().records
    assert wasted_share(records, EngineConfig(block_size=16, num_blocks=200)) < 0.04


def test_reserving_the_longest_text_wastes_a_third_and_more(folder: Path) -> None:
    model = build(locate(str(folder / "llama")), folder / "cache", lambda *_: None)
    updates: list[WorkerUpdate] = []
    worker = load_worker(
        GenerateConfig(model=model, device="cpu", max_model_len=MAX_MODEL_LEN, batch_size=4, first_step_id=0),
        updates.append,
    )
    for request in workload():
        take_message(request, worker)
    while worker.workload.has_waiting():
        worker.run_batch()
    records = [record for update in updates for record in update.records]
    assert 0.30 < wasted_share(records, EngineConfig()) < 0.50
