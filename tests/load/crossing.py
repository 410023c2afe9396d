"""Everybody at once for some minutes; afterwards, was anything lost, duplicated or crossed?"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tests.load.answers import Answer, Question, Route
from tests.load.checks import faults_of_answers, faults_of_viewers, num_skips
from tests.load.crowd import Crowd, http_client
from tests.load.figures import most_within, rate, rate_between, summary
from tests.load.log import EngineLog
from tests.load.server import Server
from tests.load.streams import ask_alone
from tests.load.viewers import Report
from tests.load.watching import room

MOST_UPDATES = 10
"""A second, of the page, for one answer."""


class Sizes(msgspec.Struct, frozen=True):
    chats: int
    streams: int
    viewers: int


class Outcome(msgspec.Struct):
    """What was seen of one run."""

    sizes: Sizes
    begin: float
    end: float
    answers: list[Answer]
    alone: dict[Question, str]
    """What each question was answered when nobody else asked."""
    report: Report
    last_version: int
    """Records of the engine when everybody had their answers."""
    cores: dict[str, float]
    """Cores that were busy, on average, for each part."""


async def everybody_at_once(server: Server, sizes: Sizes, seconds: float) -> Outcome:
    """All of them for so long; then each question once more, alone."""
    async with http_client(server.address) as client:
        crowd = Crowd(client, server.backend, chats=sizes.chats, streams=sizes.streams)
        async with room(server, sizes.viewers) as watching:
            begin, before = time.monotonic(), server.cost()
            await crowd.ask_for(seconds)
            end, after = time.monotonic(), server.cost()
            report = await watching.close()
        asked = dict.fromkeys(answer.question for answer in crowd.answers)
        alone = {question: await ask_alone(client, question, server.backend) for question in asked}
    web, engine = after.since(before)
    cores = {"web": web, "engine": engine, "viewers' own process": report.cpu_seconds}
    return Outcome(
        sizes=sizes,
        begin=begin,
        end=end,
        answers=crowd.answers,
        alone=alone,
        report=report,
        last_version=watching.last_version,
        cores={part: seconds / (end - begin) for part, seconds in cores.items()},
    )


def result(outcome: Outcome, log: EngineLog) -> dict[str, Any]:
    """Figures and faults."""
    crowd_log = log.until(outcome.last_version)
    faults = faults_of_answers(outcome.answers, crowd_log.requests_since(outcome.begin), outcome.alone)
    faults += crowd_log.stray
    faults += faults_of_viewers(outcome.report.viewers, log, outcome.last_version)
    faults += _faults_of_pace(outcome.answers)
    return {
        "asked": msgspec.to_builtins(outcome.sizes),
        "seconds": outcome.end - outcome.begin,
        "cores": outcome.cores,
        **_of_answers(outcome.answers),
        **_of_engine(crowd_log, outcome.begin, outcome.end),
        **_of_viewers(outcome.report),
        "faults": faults,
    }


def _faults_of_pace(answers: list[Answer]) -> list[str]:
    """A page that is updated more often than it should be."""
    chats = [answer for answer in answers if answer.question.route is Route.CHAT]
    return [
        f"chat {answer.question.client} ({answer.request_id}): {most} updates within a second"
        for answer in chats
        if (most := most_within(answer.frame_times, 1.0)) > MOST_UPDATES
    ]


def _of_answers(answers: list[Answer]) -> dict[str, Any]:
    chats = [answer.frame_times for answer in answers if answer.question.route is Route.CHAT]
    return {
        "answers": {route: sum(a.question.route is route for a in answers) for route in Route},
        "chat_updates_a_second": summary([pace for times in chats if (pace := rate(times)) is not None]),
        "most_chat_updates_within_a_second": max((most_within(times, 1.0) for times in chats), default=None),
    }


def _of_engine(log: EngineLog, begin: float, end: float) -> dict[str, Any]:
    steps = [step.start_time for step in log.steps()]
    return {
        "records": len(log.lines),
        "tokens_a_second": rate_between(log.token_times(), begin, end),
        "steps_a_second": rate_between(steps, begin, end),
    }


def _of_viewers(report: Report) -> dict[str, Any]:
    lateness = [value for seen in report.viewers for value in seen.lateness]
    paces = [pace for seen in report.viewers if (pace := rate(seen.frame_times)) is not None]
    return {
        "updates_a_second_of_each_viewer": summary(paces),
        "record_to_socket_seconds": summary(lateness),
        "skips": num_skips(report.viewers),
    }
