"""API: calls to copy, the raw frames of one's own request, the code. It lives in ``assets/js/api/``."""

from __future__ import annotations

import gradio as gr

from components.tab import Page, Tab


def create_api(_: Page) -> None:
    gr.HTML('<div id="api-root"></div>', apply_default_css=False)


def bind_api(_: None, __: Page) -> None:
    """Nothing of it is an event of Gradio's."""


API = Tab("api", create_api, bind_api)
