"""The Classroom: one workload over several engines. The page's part is its place; the rest is
``assets/js/classroom/``, over the routes of ``backends/api/workloads.py``."""

from __future__ import annotations

import gradio as gr

from components.tab import Page, Tab


def create_classroom(page: Page) -> None:
    gr.HTML('<div id="classroom-root"></div>', apply_default_css=False)


def bind_classroom(parts: None, page: Page) -> None:
    """Nothing of it is an event of Gradio's."""


CLASSROOM = Tab("classroom", create_classroom, bind_classroom)
