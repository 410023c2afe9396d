"""Bytes become events, however they are cut, and never without bound."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.remote.sse import Event, EventParser, TooLong

STREAM = (
    b": a comment\n\n"
    b'data: {"a": 1}\n\n'
    b"data: two\r\ndata:  lines\r\n\r\n"
    b"event: error\rdata: oops\r\r"
    b"id: 7\nretry: 10\ndata:no space\n\n"
    b"event: nothing\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [
    ("message", b'{"a": 1}'),
    ("message", b"two\n lines"),
    ("error", b"oops"),
    ("message", b"no space"),
    ("message", b"[DONE]"),
]


def feed_often(data: bytes) -> list[Event]:
    parser = EventParser(longest=100)
    return [event for _ in range(1000) for event in parser.feed(data)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    parser = EventParser()
    edges = pairwise([0, *sorted(cuts), len(STREAM)])
    assert [event for start, end in edges for event in parser.feed(STREAM[start:end])] == EVENTS


def test_an_event_that_the_end_cuts_off_is_not_given() -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: half")) == []
    assert list(parser.feed(b" an event\n")) == []


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(TooLong):
        feed_often(b"data: xxxxx")


def test_an_event_of_lines_without_end_is_refused() -> None:
    with pytest.raises(TooLong):
        feed_often(b"data: xxxxx\n")


def test_comments_may_come_for_ever() -> None:
    assert feed_often(b": ping\n") == []
