"""Traces: recordings to play, scrub and take away. The page's part is its place; the rest is
``assets/js/traces/``, over the routes of ``backends/api/traces.py``."""

from __future__ import annotations

import gradio as gr

from components.tab import Page, Tab


def create_traces(_: Page) -> None:
    gr.HTML('<div id="traces-root"></div>', apply_default_css=False)


def bind_traces(_: None, __: Page) -> None:
    """Nothing of it is an event of Gradio's."""


TRACES = Tab("traces", create_traces, bind_traces)
