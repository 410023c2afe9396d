"""The chat's own events, without a page."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
from starlette.requests import Request

from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from components.chat_events import ChatEvents
from components.conversation import text_of
from tests.fakes import FakeBackend

TEMPERATURE, MAX_TOKENS, TOP_P, TOP_K, SEED = 0.7, 3, 1.0, 0, ""


async def last_message(events: ChatEvents, visitor: str) -> str:
    """What stands under a question of this visitor, once its answer has ended."""
    request = gr.Request(Request({"type": "http", "headers": [], "client": ("192.0.2.1", 1)}))
    request.session_hash = f"session of {visitor}"
    browser = {"lang": "en", "visitor": visitor}
    log: list[Any] = []
    sampling = TEMPERATURE, MAX_TOKENS, TOP_P, TOP_K, SEED
    async for shown, *_ in events.send(request, "Hello", [], "naive", None, "", *sampling, browser):
        log = shown
    return text_of(log[-1])


async def test_a_visitor_beyond_the_share_reads_so_in_the_chat_and_is_answered_when_it_is_back() -> None:
    visitors = Visitors(Settings(public=True, visitor_requests=1))
    events = ChatEvents(Registry({"naive": lambda: FakeBackend("naive")}), visitors)
    with visitors.share("192.0.2.1", "ada") as share:
        share.take()
        refused = await last_message(events, "ada")
        assert "You have 1 request waiting or running; 1 is the limit of a visitor" in refused
        assert "limit" not in await last_message(events, "ben")
    assert await last_message(events, "ada") != refused
