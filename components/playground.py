"""The Playground: the chat on the left, what the engine did with it on the right."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from components.backend_choice import BackendChoice, bind_backend_choice, create_backend_choice
from components.chat import Chat, bind_chat, chat_updates, create_chat
from components.chat_events import ChatEvents
from components.tab import Page, Tab


@dataclass(frozen=True)
class Playground:
    choice: BackendChoice
    chat: Chat


def create_playground(page: Page) -> Playground:
    with gr.Row(elem_id="playground", equal_height=True):
        with gr.Column(elem_id="chat-column", min_width=0):
            with gr.Column(elem_id="backend-card", elem_classes="card", min_width=0):
                choice = create_backend_choice(page.registry, page.words)
            with gr.Column(elem_id="chat-card", elem_classes="card", min_width=0):
                chat = create_chat(page.settings, page.words)
        with gr.Column(elem_id="scope-column", min_width=0):
            gr.HTML('<div id="scope"></div>', apply_default_css=False)
    return Playground(choice, chat)


def bind_playground(parts: Playground, page: Page) -> None:
    events = ChatEvents(page.registry, page.visitors, page.on_chat_error)
    bind_chat(parts.chat, parts.choice, page.browser, events)
    followers = [([*parts.chat.sampling.optional, parts.chat.log], chat_updates)]
    bind_backend_choice(parts.choice, page.blocks, page.registry, page.browser, followers)


PLAYGROUND = Tab("playground", create_playground, bind_playground)
