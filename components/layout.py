"""The page as a whole: composes the parts, and puts the page on the server.

A new tab is a file with a ``Tab`` in it, and one line in ``TABS``.
"""

from __future__ import annotations

import gradio as gr
from fastapi import FastAPI

from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from components.api import API
from components.browser import create_browser
from components.classroom import CLASSROOM
from components.document import DocumentHead
from components.header import create_header
from components.lessons import LESSONS
from components.page_blocks import PageBlocks
from components.playground import PLAYGROUND
from components.sizing import SIZING
from components.static import add_static_routes
from components.tab import OnChatError, Page, Tab
from components.theme import create_theme
from components.traces import TRACES
from components.words import PageWords

TABS: tuple[Tab, ...] = (PLAYGROUND, CLASSROOM, LESSONS, SIZING, TRACES, API)
TABS_WITHOUT_ENGINE: tuple[Tab, ...] = (TRACES,)

ANSWERS_AT_ONCE = 1000
"""Answers that may be under way on all pages together: far more than an engine lets wait, so that
it is the engine that refuses, in words, and nobody waits unseen in a queue of Gradio's."""


def create_page(
    registry: Registry, settings: Settings, visitors: Visitors, on_chat_error: OnChatError
) -> gr.Blocks:
    """The page over these engines. Every part is created, then every event bound."""
    with PageBlocks(title="Servescope", analytics_enabled=False, fill_width=True) as blocks:
        page = Page(blocks, registry, settings, visitors, PageWords(), create_browser(), on_chat_error)
        tabs = TABS if registry.names else TABS_WITHOUT_ENGINE
        create_header(page, tabs)
        created = []
        for tab in tabs:
            with gr.Column(elem_id=f"tab-{tab.name}", elem_classes="tab"):
                created.append((tab, tab.create(page)))
        for tab, parts in created:
            tab.bind(parts, page)
    blocks.i18n_instance = page.words.i18n
    blocks.max_threads = ANSWERS_AT_ONCE  # what Gradio calls so bounds asynchronous events too
    return blocks.queue(max_size=ANSWERS_AT_ONCE)


def mount_page(
    app: FastAPI, registry: Registry, settings: Settings, visitors: Visitors, on_chat_error: OnChatError
) -> FastAPI:
    """Serve the page at ``/`` and its files under ``assets/``. Other routes come before this call."""
    add_static_routes(app)
    app.add_middleware(DocumentHead, lang=settings.lang, embeddable=settings.public)
    return gr.mount_gradio_app(
        app,
        create_page(registry, settings, visitors, on_chat_error),
        path="/",
        theme=create_theme(),
        footer_links=[],
        show_error=False,
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        max_file_size=1,  # nothing on this page takes a file
    )
