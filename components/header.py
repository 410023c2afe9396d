"""The head of the page: its name, the tabs, what runs, how many watch, language and theme."""

from __future__ import annotations

import html
from collections.abc import Sequence

import gradio as gr

from components.tab import Page, Tab
from components.words import word

_MODEL_CHIP = '<span id="header-model" class="chip mono" title="{title}">{model}</span>'
LANGUAGE_NAMES = {"en": "English", "ko": "한국어"}


def create_header(page: Page, tabs: Sequence[Tab]) -> None:
    """The model, the number of watchers and the marks of what is chosen are filled in by
    ``assets/js/page/header.js``. Where there is no engine there is no model."""
    model = page.settings.model if page.registry.names else None
    gr.HTML(
        page.words.html("html.header", lambda lang: _header(lang, model, tabs)),
        apply_default_css=False,
        elem_id="page-header",
    )


def _header(lang: str, model: str | None, tabs: Sequence[Tab]) -> str:
    def say(key: str) -> str:
        return html.escape(word(lang, key))

    tab_links = "".join(
        f'<a href="?tab={tab.name}" data-tab="{tab.name}">{say(f"page.tab.{tab.name}")}</a>' for tab in tabs
    )
    language_links = "".join(
        f'<a href="?lang={code}" lang="{code}" data-lang="{code}">{name}</a>'
        for code, name in LANGUAGE_NAMES.items()
    )
    chip = "" if model is None else _MODEL_CHIP.format(title=say("page.model"), model=html.escape(model))
    return f"""<header>
<h1>Servescope <small>{say("page.tagline")}</small></h1>
<nav id="page-tabs" aria-label="{say("page.tabs")}">{tab_links}</nav>
{chip}
<span id="header-watching" class="chip" hidden></span>
<nav id="page-language" class="chip" aria-label="{say("page.language")}">{language_links}</nav>
<button id="page-theme" class="chip" type="button" title="{say("page.theme")}">
<span aria-hidden="true"></span><span class="sr-only">{say("page.theme")}</span></button>
</header>"""
