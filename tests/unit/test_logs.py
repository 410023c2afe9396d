"""A line an event, that a program can read whatever is in it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from backends.logs import EventFormatter, say


def test_an_event_has_its_fields_but_those_that_are_not_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    say(logging.getLogger("test"), logging.INFO, "finished", request_id="r1", e2e_s=0.25, ttft_s=None)
    line = EventFormatter("logfmt").format(caplog.records[0])
    time, _, rest = line.partition(" ")
    assert time.startswith("time=20")
    assert time.endswith("Z")
    assert rest == "level=info event=finished request_id=r1 e2e_s=0.25"
    told = json.loads(EventFormatter("json").format(caplog.records[0]))
    del told["time"]
    assert told == {"level": "info", "event": "finished", "request_id": "r1", "e2e_s": 0.25}


@pytest.mark.parametrize("layout", ["logfmt", "json"])
def test_nothing_that_is_logged_makes_a_second_line(caplog: pytest.LogCaptureFixture, layout: str) -> None:
    caplog.set_level(logging.INFO)
    say(logging.getLogger("test"), logging.ERROR, "engine", reason='two\nlines "and" \x1b[31m a=b')
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("library").error("It said %r", "that", exc_info=sys.exc_info())
    event, told = [EventFormatter(layout).format(record) for record in caplog.records]
    assert len(event.splitlines()) == len(told.splitlines()) == 1
    assert "\x1b" not in event
    assert "ValueError" in told
    assert "It said 'that'" in told
