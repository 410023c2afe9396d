"""A race takes its engines in turn, survives those that cannot run, and stops whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends.base import GenerationRequest, TokenChunk
from backends.errors import Overloaded
from backends.records import FinishReason, RequestArrived, RequestFinished
from backends.workloads import race as race_module
from backends.workloads.race import EntryState, Race, RaceState
from backends.workloads.races import MOST_IN_LINE, MOST_KEPT, Races, UnknownRace
from backends.workloads.workload import Workload
from tests.fakes import FakeBackend

SMALL = Workload(students=3, output_tokens=(4,))
PATIENCE = 10
"""Seconds: a limit for what goes wrong."""


@pytest.fixture
async def races() -> AsyncIterator[Races]:
    races = Races()
    yield races
    await races.close()


async def until(race: Race, state: RaceState) -> None:
    async with asyncio.timeout(PATIENCE):
        while race.state is not state:
            await race.wait_beyond(race.progress().version)


async def until_running(engine: FakeBackend, count: int = 3) -> None:
    async with asyncio.timeout(PATIENCE):
        while engine.num_in_flight < count:
            await engine.recorder.wait_for(engine.recorder.version + 1)


async def until_free(engine: FakeBackend) -> None:
    async with asyncio.timeout(PATIENCE):
        while engine.num_in_flight:
            await engine.recorder.wait_for(engine.recorder.version + 1)


def slow(name: str = "slow") -> FakeBackend:
    return FakeBackend(name, step_seconds=0.05)


def states(race: Race) -> list[EntryState]:
    return [entry.state for entry in race.entries]


async def test_engines_run_one_after_another_each_with_a_result(races: Races) -> None:
    first, second = FakeBackend("first"), FakeBackend("second")
    race = races.get(races.begin(SMALL, [(first, None), (second, None)], "me"))
    await until(race, RaceState.DONE)

    assert states(race) == [EntryState.DONE] * 2
    ends = [r.time for e in first.recorder.since(0) if isinstance(r := e.record, RequestFinished)]
    begins = [r.time for e in second.recorder.since(0) if isinstance(r := e.record, RequestArrived)]
    assert max(ends) <= min(begins)
    for entry in race.entries:
        assert entry.result is not None
        assert (entry.result.num_complete, entry.result.output_tokens) == (3, 12)
    await asyncio.gather(first.stop(), second.stop())


async def test_engines_that_run_at_once_begin_when_the_last_of_them_is_warm(races: Races) -> None:
    quick, late = slow("quick"), slow("late")
    late.may_start.clear()
    entries = [(quick, None), (FakeBackend("broken", unavailable="No."), None), (late, None)]
    race = races.get(races.begin(SMALL, entries, "me", together=True))
    while race.entries[1].state is not EntryState.UNAVAILABLE:
        await race.wait_beyond(race.progress().version)
    late.may_start.set()
    await until_running(quick)
    await until_running(late)  # the quick one has not ended: it waited
    await until(race, RaceState.DONE)

    assert states(race) == [EntryState.DONE, EntryState.UNAVAILABLE, EntryState.DONE]
    begins, ends = (
        [max(times) if is_end else min(times) for times in race_times(kind, quick, late)]
        for kind, is_end in ((RequestArrived, False), (RequestFinished, True))
    )
    assert max(begins) < min(ends)
    await asyncio.gather(quick.stop(), late.stop())


def race_times(kind: type, *engines: FakeBackend) -> list[list[float]]:
    """Of the records of the race itself: the first is the warm-up's."""
    return [
        [e.record.time for e in engine.recorder.since(0) if isinstance(e.record, kind)][1:]
        for engine in engines
    ]


class Listener(FakeBackend):
    """Keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__("listener")
        self.asked: list[GenerationRequest] = []

    def generate(self, request: GenerationRequest) -> AsyncIterator[TokenChunk]:
        self.asked.append(request)
        return super().generate(request)


async def test_every_run_begins_warm_and_finds_nothing_of_an_earlier_one(races: Races) -> None:
    engine = Listener()
    for visitor in ("me", "another"):
        race = races.get(races.begin(SMALL, [(engine, None)], visitor))
        await until(race, RaceState.DONE)

    warm_ups = [engine.asked[0], engine.asked[4]]
    assert [(asked.sampling.max_tokens, asked.cache_salt) for asked in warm_ups] == [(2, None)] * 2
    first, second = ({asked.cache_salt for asked in engine.asked[at : at + 3]} for at in (1, 5))
    assert len(first) == len(second) == 1
    assert first != second
    assert None not in first | second
    await engine.stop()


async def test_one_that_cannot_run_is_reported_and_the_others_go_on(races: Races) -> None:
    broken, whole = FakeBackend("broken", unavailable="It needs a part."), FakeBackend("whole")
    race = races.get(races.begin(SMALL, [(broken, None), (whole, None)], "me"))
    await until(race, RaceState.DONE)

    assert states(race) == [EntryState.UNAVAILABLE, EntryState.DONE]
    assert race.entries[0].reason == "It needs a part."
    assert race.entries[0].result is None
    await whole.stop()


async def test_an_engine_that_dies_fails_its_requests_and_the_others_go_on(races: Races) -> None:
    dying, whole = slow("dying"), FakeBackend("whole")
    race = races.get(races.begin(SMALL, [(dying, None), (whole, None)], "me"))
    await until_running(dying)
    dying.die()
    await until(race, RaceState.DONE)

    result = race.entries[0].result
    assert result is not None
    assert result.num_failed == 3
    assert "killed" in (result.error or "")
    assert race.entries[1].result is not None
    assert race.entries[1].result.num_complete == 3
    await asyncio.gather(dying.stop(), whole.stop())


async def test_progress_tells_how_far_a_starting_engine_is_and_how_many_requests_ended(
    races: Races,
) -> None:
    engine = slow()
    engine.may_start.clear()
    race = races.get(races.begin(SMALL, [(engine, None)], "me"))
    while (told := race.progress().entries[0]).engine is None or told.engine.progress != 0.5:
        await race.wait_beyond(race.progress().version)
    assert (told.state, told.num_ended, told.num_requests) == (EntryState.STARTING, 0, 3)
    engine.may_start.set()
    seen = set()
    while not race.has_ended:
        await race.wait_beyond(race.progress().version)
        seen.add(race.progress().entries[0].num_ended)
    assert 3 in seen
    await engine.stop()


async def test_stop_ends_every_request_and_keeps_what_was_measured(races: Races) -> None:
    done, stopped, never = FakeBackend("done"), slow("stopped"), FakeBackend("never")
    race = races.get(races.begin(SMALL, [(done, None), (stopped, None), (never, None)], "me"))
    await until_running(stopped)
    await races.stop(race)
    assert stopped.num_in_flight == 0

    assert race.state is RaceState.STOPPED
    assert states(race) == [EntryState.DONE, EntryState.STOPPED, EntryState.STOPPED]
    assert race.entries[0].result is not None
    assert race.entries[1].result is not None
    reasons = [lane.reason for lane in race.entries[1].result.lanes]
    assert reasons == [FinishReason.ABORT] * 3, "the records tell how each of them ended"
    assert race.entries[2].result is None
    assert never.recorder.version == 1  # it was never started
    await asyncio.gather(done.stop(), stopped.stop())


async def test_a_race_can_be_stopped_before_it_has_begun(races: Races) -> None:
    engine = FakeBackend()
    race = races.get(races.begin(SMALL, [(engine, None)], "me"))
    await races.stop(race)

    assert race.state is RaceState.STOPPED
    assert races.get(races.begin(SMALL, [(engine, None)], "me")).place == 0


async def test_an_entry_that_takes_too_long_is_stopped(races: Races, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_module, "LONGEST_ENTRY", 2.0)
    paused, whole = FakeBackend("paused"), FakeBackend("whole")
    paused.gate.pause()
    race = races.get(races.begin(SMALL, [(paused, None), (whole, None)], "me"))
    await until(race, RaceState.DONE)

    assert states(race) == [EntryState.FAILED, EntryState.DONE]
    assert "stopped after" in (race.entries[0].reason or "")
    assert paused.num_in_flight == 0
    await asyncio.gather(paused.stop(), whole.stop())


async def test_a_visitor_has_one_race_at_a_time_and_may_have_another_when_it_has_ended(
    races: Races,
) -> None:
    engine = slow()
    race = races.get(races.begin(SMALL, [(engine, None)], "me"))
    with pytest.raises(Overloaded):
        races.begin(SMALL, [(engine, None)], "me")
    await races.stop(race)
    races.begin(SMALL, [(engine, None)], "me")
    await races.close()
    await engine.stop()


async def test_races_wait_in_line_and_the_line_is_bounded(races: Races) -> None:
    engine = slow()
    line = [races.get(races.begin(SMALL, [(engine, None)], str(number))) for number in range(MOST_IN_LINE)]
    assert [race.place for race in line] == list(range(MOST_IN_LINE))
    with pytest.raises(Overloaded, match=str(MOST_IN_LINE)):
        races.begin(SMALL, [(engine, None)], "one more")

    await until_running(engine)
    assert [race.state for race in line[:2]] == [RaceState.RUNNING, RaceState.QUEUED]
    await races.stop(line[1])
    await races.stop(line[0])
    assert [race.place for race in line[2:]] == list(range(MOST_IN_LINE - 2))
    await until(line[2], RaceState.RUNNING)
    await races.close()
    await engine.stop()


async def test_whoever_leaves_takes_their_race_along(races: Races) -> None:
    engine = slow()
    mine = races.get(races.begin(SMALL, [(engine, None)], "me"))
    other = races.get(races.begin(SMALL, [(engine, None)], "other"))
    await until_running(engine)
    await races.abort_visitor("me")
    await until_free(engine)

    assert (mine.state, other.has_ended) == (RaceState.STOPPED, False)
    await races.close()
    await engine.stop()


async def test_old_races_are_forgotten(races: Races) -> None:
    engine = FakeBackend()
    ids = []
    for _ in range(MOST_KEPT + 3):
        ids.append(races.begin(Workload(students=1, output_tokens=(1,)), [(engine, None)], "me"))
        await until(races.get(ids[-1]), RaceState.DONE)
        await races.stop(races.get(ids[-1]))
    with pytest.raises(UnknownRace):
        races.get(ids[0])
    assert races.get(ids[-1]).state is RaceState.DONE
    assert len(set(ids)) == len(ids)
    await engine.stop()
