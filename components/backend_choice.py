"""Which engine answers: the choice, what the engine is, and how it runs a request."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from backends.base import Backend, BackendInfo
from backends.errors import ServescopeError
from backends.registry import Registry
from components.browser import TELL_JS, Browser
from components.words import PageWords, words

OPEN_JS = f"""(...inputs) => {{
    const asked = new URLSearchParams(location.search).get('backend');
    const options = [...document.querySelectorAll('#backend-choice input')].map((input) => input.value);
    return ({TELL_JS})(options.includes(asked) ? asked : inputs[0], ...inputs.slice(1));
}}"""
"""The page opens with the engine that its address names, if there is one of that name."""

CHOSEN_JS = """(name) => {
    window.dispatchEvent(new CustomEvent('servescope:backend', {detail: {name}}));
}"""
"""Tells the page's scripts, also when it was not a click that changed the choice."""

Follower = Callable[[BackendInfo, str], list[Any]]
"""Another part's updates for the chosen engine, in a language; one for each of its components."""


@dataclass(frozen=True)
class BackendChoice:
    name: gr.Radio
    about: gr.HTML
    mode: gr.Radio


def create_backend_choice(registry: Registry, page_words: PageWords) -> BackendChoice:
    name = gr.Radio(
        [(backend.info.title, backend.info.name) for backend in registry],
        value=registry.default,
        label=page_words("page.backend"),
        show_label=False,
        container=False,
        interactive=True,
        elem_id="backend-choice",
    )
    about = gr.HTML(elem_id="backend-about")
    gr.HTML('<p id="backend-state" role="status"></p>')
    mode = gr.Radio(
        [],
        label=page_words("settings.mode"),
        interactive=True,
        visible=False,
        elem_id="backend-mode",
    )
    return BackendChoice(name, about, mode)


def bind_backend_choice(
    choice: BackendChoice,
    page: gr.Blocks,
    registry: Registry,
    browser: gr.JSON,
    followers: Sequence[tuple[Sequence[Component], Follower]],
) -> None:
    """On opening and on every choice: describe the engine, start it, and let others follow."""
    starter = Starter()

    async def choose(name: str, told: Any) -> list[Any]:
        lang = Browser.from_event(told).lang
        backend = registry.get(name)
        starter.start(backend)
        return [
            gr.update(value=backend.info.name),
            gr.update(value=describe(backend.info, lang)),
            mode_update(backend.info, lang),
            *(update for _, follow in followers for update in follow(backend.info, lang)),
        ]

    listener: dict[str, Any] = {
        "fn": choose,
        "inputs": [choice.name, browser],
        "outputs": [
            choice.name,
            choice.about,
            choice.mode,
            *(part for parts, _ in followers for part in parts),
        ],
        "show_progress": "hidden",
        "queue": False,
        "api_visibility": "private",
    }
    page.load(js=OPEN_JS, **listener)
    choice.name.input(js=TELL_JS, **listener)
    choice.name.change(fn=None, js=CHOSEN_JS, inputs=[choice.name], api_visibility="private")


def describe(info: BackendInfo, lang: str) -> str:
    """One sentence: what this engine does with a request."""
    sentence = words(lang).get(f"page.backend.{info.name}", "")
    return f"<p><b>{html.escape(info.title)}</b> {html.escape(sentence)}</p>" if sentence else ""


def mode_update(info: BackendInfo, lang: str) -> Any:
    """The ways this engine runs a request, the default first; nothing to choose, nothing shown."""
    named = words(lang)
    return gr.update(
        choices=[(named.get(f"settings.mode.{mode}", mode), mode) for mode in info.modes],
        value=info.modes[0] if info.modes else None,
        visible=len(info.modes) > 1,
    )


class Starter:
    """Starts an engine as soon as it is chosen; how far it is, is in its state."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, backend: Backend) -> None:
        task = asyncio.create_task(backend.start())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), ServescopeError | None):
            task.result()
