"""What ``make bench`` would report: fair work, counted tokens, ratios turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backends.base import SamplingParams
from backends.models import PreparedModel
from backends.paged import worker
from backends.paged.core import EngineCore
from backends.paged.engine import PagedEngine
from backends.settings import Settings
from backends.worker_messages import AddRequest, WorkerUpdate
from benchmarks import __main__ as bench
from benchmarks import child
from benchmarks.child import Child, ChildFailed, WrongAnswer
from benchmarks.engine import Engine
from benchmarks.engines import ENGINES
from benchmarks.machine import Limits, best
from benchmarks.telemetry import SilentCore
from benchmarks.workload import Workload
from tests.tiny_models import prepare_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    folder: Path = tmp_path_factory.mktemp("bench")
    return prepare_tiny_model(folder, "llama")


class Scripted:
    """Stands where a child does; answers at the speeds it is given."""

    def __init__(self, name: str, speeds: list[float]) -> None:
        self.name, self.speeds, self.seeds = name, list(speeds), []

    def run(self, workload: Workload, seed: int) -> float:
        self.seeds.append((workload.concurrent, seed))
        return self.speeds.pop(0)


def test_a_workload_is_the_same_for_everybody_and_another_in_each_turn() -> None:
    work = Workload(4, prompt_tokens=7)
    assert work.prompts(1) == work.prompts(1) != work.prompts(2)
    assert [len(prompt) for prompt in work.prompts(1)] == [7] * 4


def test_engines_take_turns_and_get_the_same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "is_sequential", lambda name: False)
    ours, theirs = Scripted("paged", [10, 20, 30, 40]), Scripted("vLLM", [5, 5, 10, 10])
    speeds = bench.take_turns([ours, theirs], [Workload(1), Workload(4)], turns=2)  # type: ignore[list-item]
    assert ours.seeds == theirs.seeds
    assert len(set(ours.seeds)) == 4
    assert speeds == {"paged": {1: [10, 30], 4: [20, 40]}, "vLLM": {1: [5, 10], 4: [5, 10]}}
    assert bench.ratio(speeds, "vLLM", 4) == 4.0


def test_one_request_after_the_other_is_measured_once_a_turn() -> None:
    one = Scripted("generate sequential", [9, 11])
    speeds = bench.take_turns([one], [Workload(1), Workload(16)], turns=2)  # type: ignore[list-item]
    assert speeds["generate sequential"] == {1: [9, 11], 16: [9, 11]}


def test_the_limit_is_reading_or_multiplying_whichever_takes_longer(model: PreparedModel) -> None:
    count = model.shape.num_parameters
    assert count is not None
    limits = Limits("a machine", bandwidth=4.0 * count, multiply_rates={1: 1e18, 8: 4.0 * count})
    assert bench.limit_of(Workload(1), model, limits) == pytest.approx(1)  # one read a second
    assert bench.limit_of(Workload(8), model, limits) == pytest.approx(2)  # 16 products in 4 seconds


class TwoTooFew(Engine):
    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        pass

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        return [output_tokens - 2 for _ in prompts]


class Broken(TwoTooFew):
    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        raise OSError(f"no weights for {device}")


@pytest.mark.parametrize(
    ("engine", "error", "words"),
    [
        (TwoTooFew, WrongAnswer, r"paged: \[62, 62\] new tokens instead of 64 each"),
        (Broken, ChildFailed, "OSError: no weights for cpu"),
    ],
)
def test_an_engine_that_does_not_do_the_work_fails_the_run(
    model: PreparedModel,
    monkeypatch: pytest.MonkeyPatch,
    engine: Callable[[], Engine],
    error: type[Exception],
    words: str,
) -> None:
    monkeypatch.setitem(ENGINES, "paged", engine)
    monkeypatch.setattr(child, "CONTEXT", "fork")  # so that the child knows this engine
    with pytest.raises(error, match=words):  # noqa: PT012
        paged = Child("paged", model, threads=1)
        try:
            paged.run(Workload(2), seed=0)
        finally:
            paged.stop()


def test_a_gpu_is_refused_in_words_where_torch_sees_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "sees_gpu", lambda: False)
    with pytest.raises(SystemExit):
        bench.parse_arguments(["--device", "cuda"])
    assert "--device cuda: torch sees no GPU on this machine" in capsys.readouterr().err
    assert bench.parse_arguments([]).device == "cpu"


def test_on_a_gpu_those_are_measured_that_compute_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "sees_gpu", lambda: True)
    engines = bench.parse_arguments(["--device", "cuda"]).engines
    assert engines == "paged,vLLM,generate sequential,generate static,generate_batch"
    with pytest.raises(SystemExit):
        bench.parse_arguments(["--device", "cuda", "--engines", "paged int8"])
    assert "'paged int8' is not one of paged, paged plain, vLLM" in capsys.readouterr().err


def test_the_clock_is_read_when_the_device_is_done() -> None:
    said: list[str] = []
    best(lambda: said.append("work"), repeats=2, wait=lambda: said.append("wait"))
    assert said == ["work", *["wait", "work", "wait"] * 2]


def test_without_its_records_the_engine_chooses_the_same_tokens(
    model: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PagedEngine(Settings(max_model_len=64, num_blocks=64))
    engine.model = model
    config = engine.worker_config(model)
    told = run_to_end(worker.build_core(config))
    monkeypatch.setattr(worker, "EngineCore", SilentCore)
    silent = run_to_end(worker.build_core(config))
    assert [update.tokens for update in silent] == [update.tokens for update in told]
    assert all(update.records for update in told)
    assert not any(update.records for update in silent)


def run_to_end(core: EngineCore) -> list[WorkerUpdate]:
    sampling = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
    for number in range(3):
        core.add(AddRequest(request_id=str(number), prompt_ids=[7, 8, 9 + number], sampling=sampling))
    updates = []
    while core.has_work():
        updates.append(core.step())
    return updates
