"""The words of the screen, from ``assets/words/<language>.json``, one flat object each.

What never changes while the page is open is translated by the browser: a component gets
``PageWords(key)`` and Gradio looks the key up in the language that ``assets/js/page/boot.js`` chose.
What a handler says is translated here, by ``word``; the browser tells its language with the event.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import gradio as gr
from gradio.i18n import I18nData

LANGUAGES = ("en", "ko")
DEFAULT_LANGUAGE = "en"
WORDS_FOLDER = Path(__file__).parent.parent / "assets" / "words"


def words(lang: str) -> Mapping[str, str]:
    """All words of a language; those of English for a language there is none for."""
    return _read(lang if lang in LANGUAGES else DEFAULT_LANGUAGE)


@cache
def _read(lang: str) -> Mapping[str, str]:
    found: dict[str, str] = json.loads((WORDS_FOLDER / f"{lang}.json").read_text(encoding="utf-8"))
    return found


def word(lang: str, key: str, **values: object) -> str:
    """One sentence in a language, its ``{names}`` filled in. A missing key is a ``KeyError``."""
    sentence = words(lang)[key]
    return sentence.format(**values) if values else sentence


class PageWords:
    """Words that the browser looks up when it draws a component."""

    def __init__(self) -> None:
        self.i18n = gr.I18n(**{lang: dict(words(lang)) for lang in LANGUAGES})

    def __call__(self, key: str) -> I18nData:
        if key not in words(DEFAULT_LANGUAGE):
            raise KeyError(key)
        return self.i18n(key)

    def html(self, key: str, render: Callable[[str], str]) -> I18nData:
        """A piece of HTML in every language: ``render`` makes it for one."""
        for lang in LANGUAGES:
            self.i18n.translations[lang][key] = render(lang)
        return self.i18n(key)
