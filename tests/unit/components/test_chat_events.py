"""The chat's own events, without a page."""

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
from starlette.requests import Request

from backends.errors import ServescopeError
from backends.records import FinishReason, RequestArrived, RequestFinished
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from components.chat_events import ChatEvents
from components.conversation import text_of
from tests.api.serving import recorded
from tests.fakes import FakeBackend

TEMPERATURE, MAX_TOKENS, TOP_P, TOP_K, SEED = 0.7, 3, 1.0, 0, ""


class Heard:
    """What failed: of which engine, whether it had an id, and the error's code."""

    def __init__(self) -> None:
        self.all: list[tuple[str, bool, str]] = []

    def __call__(self, backend: str, request_id: str | None, error: ServescopeError) -> None:
        self.all.append((backend, request_id is not None, error.code))


def chat(naive: FakeBackend, heard: Heard, visitors: Visitors | None = None) -> ChatEvents:
    return ChatEvents(Registry({"naive": lambda: naive}), visitors or Visitors(Settings()), heard)


def event_of(visitor: str) -> gr.Request:
    request = gr.Request(Request({"type": "http", "headers": [], "client": ("192.0.2.1", 1)}))
    request.session_hash = f"session of {visitor}"
    return request


async def last_message(
    events: ChatEvents, visitor: str, backend: str = "naive", text: str = "Hello", seed: str = SEED
) -> str:
    """What stands under a question of this visitor, once its answer has ended."""
    browser = {"lang": "en", "visitor": visitor}
    log: list[Any] = []
    sampling = TEMPERATURE, MAX_TOKENS, TOP_P, TOP_K, seed
    async for shown, *_ in events.send(event_of(visitor), text, [], backend, None, "", *sampling, browser):
        log = shown
    return text_of(log[-1])


async def test_a_visitor_beyond_the_share_reads_so_in_the_chat_and_is_answered_when_it_is_back() -> None:
    visitors = Visitors(Settings(public=True, visitor_requests=1))
    heard = Heard()
    events = chat(FakeBackend("naive"), heard, visitors)
    with visitors.share("192.0.2.1", "ada") as share:
        share.take()
        refused = await last_message(events, "ada")
        assert "You have 1 request waiting or running; 1 is the limit of a visitor" in refused
        assert "limit" not in await last_message(events, "ben")
    assert await last_message(events, "ada") != refused
    assert heard.all == [("naive", True, "overloaded")]


async def test_a_chat_that_cannot_be_asked_is_told_without_an_id_and_under_no_name_but_an_engines() -> None:
    heard = Heard()
    events = chat(FakeBackend("naive", supported=frozenset({"seed"})), heard)
    assert "No backend" in await last_message(events, "ada", backend="<b>ada</b>")
    assert "The seed is" in await last_message(events, "ada", seed="ada")
    await last_message(events, "ada", text=" ")  # nothing is asked: nothing fails
    assert heard.all == [("", False, "unknown_backend"), ("naive", False, "invalid_request")]


async def test_a_chat_whose_engine_dies_is_told_once_and_one_that_its_visitor_stops_is_not() -> None:
    heard, naive = Heard(), FakeBackend("naive")
    events = chat(naive, heard)
    await naive.start()
    naive.gate.pause()
    for number, end in enumerate((naive.die, lambda: events.stop(event_of("ada"))), start=1):
        asking = asyncio.create_task(last_message(events, "ada"))
        await recorded(naive.recorder, RequestArrived, number)
        end()
        await asking
    ends = await recorded(naive.recorder, RequestFinished, 2)
    assert [record.reason for record in ends] == [FinishReason.ERROR, FinishReason.ABORT]
    assert heard.all == [("naive", True, "engine_died")]
    await naive.stop()
