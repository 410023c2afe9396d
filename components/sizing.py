"""Sizing: what a model needs of a card's memory. The calculator is ``assets/js/sizing/``."""

from __future__ import annotations

import gradio as gr

from components.tab import Page, Tab


def create_sizing(_: Page) -> None:
    gr.HTML('<div id="sizing-root"></div>', apply_default_css=False)


def bind_sizing(_: None, __: Page) -> None:
    """Nothing of it is an event of Gradio's."""


SIZING = Tab("sizing", create_sizing, bind_sizing)
