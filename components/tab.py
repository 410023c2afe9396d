"""What a tab is to the page, and what the page is to a tab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backends.errors import ServescopeError
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from components.words import PageWords

OnChatError = Callable[[str, str | None, ServescopeError], None]
"""Called with the backend (empty where it is none of this server's), the request's id if it got one, and what
ended a chat in place of its answer or after a part of it."""


@dataclass(frozen=True)
class Page:
    """What every part of the page builds on."""

    blocks: gr.Blocks
    registry: Registry
    settings: Settings
    visitors: Visitors
    words: PageWords
    browser: gr.JSON
    on_chat_error: OnChatError


@dataclass(frozen=True)
class Tab:
    """One entry of ``layout.TABS``. All tabs are created before any is bound."""

    name: str
    """In the address (``?tab=``), in the element's id (``tab-<name>``) and in the words
    (``page.tab.<name>``)."""
    create: Callable[[Page], Any]
    bind: Callable[[Any, Page], None]
    """Gets what ``create`` returned."""
