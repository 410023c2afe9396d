"""Experiments under way: watched, bounded, and nothing of them left when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from backends.api.in_process import in_process_post
from backends.errors import EngineUnavailable, InvalidRequest, Overloaded
from backends.lessons.ground import Ground, Progress
from backends.lessons.outcome import Outcome, Unit, measured
from backends.lessons.prompts import now, prompt_of
from backends.lessons.runs import MOST_KEPT, LessonRun, LessonRuns, RunStopped, UnknownRun
from backends.records import AnyRecord, State, StepRecord
from backends.settings import Settings
from backends.trace import read_trace
from tests.fakes import FakeBackend

PATIENCE = 20


class Engines:
    """Makes private engines, and remembers them."""

    def __init__(self, **options: object) -> None:
        self.made: list[FakeBackend] = []
        self._options = options

    def __call__(self, name: str, /, **settings: object) -> FakeBackend:
        self.made.append(FakeBackend(name, **self._options))
        return self.made[-1]

    @property
    def all_stopped(self) -> bool:
        return all(engine.state.state is State.IDLE and not engine.num_in_flight for engine in self.made)


def ground_of(engines: Engines, report: Callable[[Progress], None] = lambda progress: None) -> Ground:
    return Ground(engines, report, in_process_post(Settings(max_model_len=64)))


def runs_on(engines: Engines, most: int = 2) -> LessonRuns:
    return LessonRuns(lambda report: ground_of(engines, report), most)


async def count_steps(ground: Ground) -> Outcome:
    async with ground.engine("naive") as engine:
        run = await ground.run(engine, [now("one two", 3)] * 2)
    steps = [record for record in run.records if isinstance(record, StepRecord)]
    return Outcome(measured=[measured("steps", len(steps), Unit.STEPS)])


async def never_ends(ground: Ground) -> Outcome:
    async with ground.engine("naive") as engine:
        await ground.run(engine, [now("one", 10**6)])
    raise AssertionError("it was to be stopped")


async def seen_by(run: LessonRun, condition: Callable[[Progress], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        async for event in run.events():
            if isinstance(event, Progress) and condition(event):
                return


async def test_a_run_tells_how_far_it_is_and_then_its_outcome() -> None:
    engines = Engines()
    run = runs_on(engines).begin(count_steps, "ada")
    events = [event async for event in run.events()]

    assert isinstance(events[-1], Outcome)
    assert events[-1].value("steps") == 3
    assert all(isinstance(event, Progress) for event in events[:-1])
    assert engines.all_stopped


async def test_requests_of_a_run_are_in_the_first_step_together() -> None:
    engines = Engines()
    ground = ground_of(engines)
    async with ground.engine("naive") as engine:
        run = await ground.run(engine, [now("one two", 3)] * 4)

    steps = [record for record in run.records if isinstance(record, StepRecord)]
    assert [len(step.rows) for step in steps] == [4, 4, 4]


async def test_a_request_that_is_refused_ends_the_experiment_with_its_words() -> None:
    engines = Engines()
    ground = ground_of(engines)
    with pytest.raises(InvalidRequest, match="100"):
        async with asyncio.timeout(PATIENCE), ground.engine("naive") as engine:
            await ground.run(engine, [now("one", 3), now("word " * 100, 3)])
    assert engines.all_stopped


async def test_a_stopped_run_leaves_no_engine_and_says_that_it_was_stopped() -> None:
    engines = Engines(step_seconds=0.01)
    runs = runs_on(engines)
    run = runs.begin(never_ends, "ada")
    await seen_by(run, lambda progress: progress.num_requests == 1)
    await runs.stop(run.run_id)

    assert engines.all_stopped
    assert runs.num_running == 0
    for ask in (runs.stop(run.run_id), asyncio.to_thread(runs.traces, run.run_id)):
        with pytest.raises(UnknownRun):
            await ask
    with pytest.raises(RunStopped):
        [event async for event in run.events()]


async def test_the_records_of_the_last_runs_are_kept() -> None:
    runs = runs_on(Engines())
    ids = []
    for _ in range(MOST_KEPT + 1):
        run = runs.begin(count_steps, "ada")
        [event async for event in run.events()]
        ids.append(run.run_id)

    [trace] = runs.traces(ids[1])
    assert trace.engine == "naive"
    assert len([record for record in read_trace(trace.lines.splitlines()).records if is_step(record)]) == 3
    with pytest.raises(UnknownRun, match="run the experiment again"):
        runs.traces(ids[0])


def is_step(record: AnyRecord) -> bool:
    return isinstance(record, StepRecord)


async def test_an_engine_that_cannot_run_ends_the_experiment_with_its_reason() -> None:
    run = runs_on(Engines(unavailable="No weights here.")).begin(count_steps, "ada")
    with pytest.raises(EngineUnavailable, match="No weights here"):
        [event async for event in run.events()]


async def test_a_visitor_has_one_run_and_the_server_a_few() -> None:
    runs = runs_on(Engines(step_seconds=0.01), most=2)
    runs.begin(never_ends, "ada")
    with pytest.raises(Overloaded, match="You have"):
        runs.begin(never_ends, "ada")
    runs.begin(never_ends, "ben")
    with pytest.raises(Overloaded, match="runs 2 at once"):
        runs.begin(never_ends, "cem")
    await runs.close()

    assert runs.num_running == 0
    run = runs.begin(count_steps, "ada")
    assert isinstance([event async for event in run.events()][-1], Outcome)


@pytest.mark.parametrize("num_tokens", [1, 4, 40])
async def test_a_prompt_has_exactly_the_tokens_asked_for(num_tokens: int) -> None:
    engine = FakeBackend()
    prompt = await prompt_of(engine, num_tokens, seed=1)
    assert await engine.count_prompt_tokens(prompt) == num_tokens
    longer = await prompt_of(engine, num_tokens + 8, start=prompt, seed=2)
    assert longer.startswith(prompt)
    assert longer != await prompt_of(engine, num_tokens + 8, start=prompt, seed=3)
