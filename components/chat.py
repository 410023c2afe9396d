"""The chat: a visitor's words go to the chosen engine, its tokens come back as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from backends.base import BackendInfo
from backends.settings import Settings
from components.backend_choice import BackendChoice
from components.browser import TELL_JS
from components.chat_events import ChatEvents
from components.conversation import log_from_browser
from components.sampling import Sampling, create_sampling, sampling_updates
from components.words import PageWords, word

MINE_JS = """(requestId) => {
    if (requestId) window.dispatchEvent(new CustomEvent('servescope:mine', {detail: {requestId}}));
}"""
"""Tells the panels which of the requests in the shared feed is this visitor's own."""

EXAMPLES = ("chat.example.count", "chat.example.batching", "chat.example.story")


@dataclass(frozen=True)
class Chat:
    log: gr.Chatbot
    input: gr.Textbox
    send: gr.Button
    stop: gr.Button
    system_prompt: gr.Textbox
    sampling: Sampling
    request_id: gr.Textbox
    """Not seen: the way of a request's id from the server to the panels."""

    @property
    def outputs(self) -> list[Component]:
        return [self.log, self.input, self.send, self.stop, self.request_id]


def create_chat(settings: Settings, page_words: PageWords) -> Chat:
    log = gr.Chatbot(
        label=page_words("chat.log"),
        show_label=False,
        elem_id="chat-log",
        height=None,
        autoscroll=False,  # assets/js/page/chat.js::keepEndInView
        editable="user",
        buttons=[],
        render_markdown=False,
        latex_delimiters=[],
        allow_tags=False,
        group_consecutive_messages=False,
        placeholder=page_words("chat.placeholder"),
        layout="bubble",
    )
    # Gradio's own would build any component that a message names, with the sender's arguments.
    log.preprocess = log_from_browser  # type: ignore[method-assign]
    gr.HTML('<div id="chat-meta" role="status"></div>', apply_default_css=False)
    with gr.Row(elem_id="chat-entry"):
        entry = gr.Textbox(
            value="",
            label=page_words("chat.input"),
            placeholder=page_words("chat.input"),
            show_label=False,
            container=False,
            lines=1,
            max_lines=6,
            scale=1,
            elem_id="chat-input",
        )
        stop = gr.Button(
            page_words("chat.stop"), interactive=False, scale=0, min_width=0, elem_id="chat-stop"
        )
        send = gr.Button(
            page_words("chat.send"), variant="primary", scale=0, min_width=0, elem_id="chat-send"
        )
    # Not an Accordion: that makes its parts when it opens, and a frame later sets them back to what they
    # were made with (AppTree.render_previously_invisible_children), whatever was written meanwhile.
    with gr.Column(elem_id="chat-settings", min_width=0):
        gr.Button(page_words("settings.title"), elem_id="settings-title", min_width=0)  # page/chat.js opens
        with gr.Column(elem_id="settings-parts", min_width=0):
            system_prompt = gr.Textbox(
                value="",
                label=page_words("settings.system_prompt"),
                placeholder=page_words("settings.system_prompt.placeholder"),
                lines=2,
                max_lines=4,
                elem_id="settings-system-prompt",
            )
            sampling = create_sampling(settings, page_words)
    request_id = gr.Textbox(visible="hidden", label="request id", elem_id="chat-request-id")
    return Chat(log, entry, send, stop, system_prompt, sampling, request_id)


def bind_chat(chat: Chat, choice: BackendChoice, browser: gr.JSON, events: ChatEvents) -> None:
    """Every way to ask streams into the log; Stop and clear act beside the stream."""
    asked_with = [
        chat.log,
        choice.name,
        choice.mode,
        chat.system_prompt,
        *chat.sampling.inputs,
        browser,
    ]
    streaming: dict[str, Any] = {
        "outputs": chat.outputs,
        "js": TELL_JS,
        "show_progress": "hidden",
        "api_visibility": "private",
        "concurrency_limit": None,
    }
    gr.on(
        [chat.send.click, chat.input.submit],
        events.send,
        inputs=[chat.input, *asked_with],
        **streaming,
    )
    chat.log.example_select(events.example, inputs=asked_with, **streaming)
    chat.log.retry(events.retry, inputs=asked_with, **streaming)
    chat.log.edit(events.edit, inputs=asked_with, **streaming)
    beside: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    chat.stop.click(events.stop, **beside)
    chat.log.clear(events.clear, **beside)
    chat.request_id.change(fn=None, js=MINE_JS, inputs=[chat.request_id], api_visibility="private")


def chat_updates(info: BackendInfo, lang: str) -> list[Any]:
    """What of the chat depends on the engine or is a list of words: the optional settings, the examples."""
    examples = [{"text": word(lang, key)} for key in EXAMPLES]
    return [*sampling_updates(info, lang), gr.update(examples=examples)]
