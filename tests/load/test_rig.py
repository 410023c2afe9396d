"""The rig itself: an honest server passes, and each kind of fault is found and named."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from backends.records import RequestFinished, TokenEmitted
from backends.settings import Settings
from tests import factories as make
from tests.browser.site import serving
from tests.example_backend import MirrorBackend
from tests.load.crossing import Outcome, Sizes, everybody_at_once, result
from tests.load.log import EngineLog
from tests.load.server import Server


class Mirror(MirrorBackend):
    """An engine whose answer depends on the question, and that has something to open a feed with."""

    async def _launch(self) -> None:
        self.recorder.append(make.header(backend=self.info.name))


async def test_the_rig_passes_an_honest_server_and_names_each_fault(tmp_path: Path) -> None:
    """A short run with real connections, and then its results spoilt in one way after the other."""
    engine = Mirror(Settings())
    async with serving({"mirror": engine}) as address:  # type: ignore[dict-item]
        await engine.start()
        server = Server(address.rstrip("/"), os.getpid(), "mirror", tmp_path)
        run = await everybody_at_once(server, Sizes(chats=3, streams=2, viewers=2), seconds=0.1)
    log = EngineLog([entry.line for entry in engine.recorder.history()[1]])
    assert result(run, log)["faults"] == []
    assert {answer.question.route.value for answer in run.answers} == {"chat", "openai", "teaching"}

    def faults(spoil: Callable[[Outcome], object], lines: list[bytes] = log.lines) -> str:
        spoilt = deepcopy(run)
        spoil(spoilt)
        return " ".join(result(spoilt, EngineLog(lines))["faults"])

    def cross(spoilt: Outcome) -> None:
        one, other = (
            spoilt.answers[0],
            next(a for a in spoilt.answers if a.question != run.answers[0].question),
        )
        one.text, other.text = other.text, one.text

    def without(kind: type, index: int) -> list[bytes]:
        chosen = [number for number, record in enumerate(log.records) if isinstance(record, kind)]
        return [line for number, line in enumerate(log.lines) if number != chosen[index]]

    def skip_a_record(spoilt: Outcome) -> None:
        segment = spoilt.report.viewers[1].segments[0]
        segment.checksums = segment.checksums[4:]

    stream = next(i for i, answer in enumerate(run.answers) if answer.question.route != "chat")
    chat = next(i for i, answer in enumerate(run.answers) if answer.question.route == "chat")
    assert "got the answer to" in faults(cross)
    assert "differs at character 0" in faults(lambda run: setattr(run.answers[0], "text", "?"))
    assert "characters, not" in faults(lambda run: setattr(run.answers[0], "text", run.answers[0].text[:-2]))
    assert "frames came for" in faults(lambda run: run.answers[stream].frame_times.clear())
    assert "updates within a second" in faults(lambda run: run.answers[chat].frame_times.extend([1e9] * 11))
    assert "nobody got it" in faults(lambda run: run.answers.pop())
    assert "2 clients got it" in faults(lambda run: run.answers.append(run.answers[0]))
    assert "no record of it" in faults(lambda run: setattr(run.answers[0], "request_id", "another"))
    assert "is not the engine's" in faults(skip_a_record)
    assert "records" in faults(lambda run: run.report.viewers[0].segments.clear())
    assert "tokens were emitted as" in faults(lambda run: None, without(TokenEmitted, 3))
    assert "it ended as []" in faults(lambda run: None, without(RequestFinished, 0))
