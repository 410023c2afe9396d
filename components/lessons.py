"""Lessons: a text, a prediction, and an experiment that measures it. The page's part is its place;
the rest is ``assets/js/lessons/``, over the routes of ``backends/api/lessons.py``."""

from __future__ import annotations

import gradio as gr

from components.tab import Page, Tab


def create_lessons(_: Page) -> None:
    gr.HTML('<div id="lessons-root"></div>', apply_default_css=False)


def bind_lessons(_: None, __: Page) -> None:
    """Nothing of it is an event of Gradio's."""


LESSONS = Tab("lessons", create_lessons, bind_lessons)
