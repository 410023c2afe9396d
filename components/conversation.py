"""A conversation as the chat log holds it, and as a model reads it.

It lives in the browser alone: the Chatbot's value comes with every event and goes back with the
answer, so the server keeps nothing and a page costs no connection while nobody writes.

The log parses what it shows as HTML, Markdown off or not. So text is escaped on its way into a
message and read back by ``text_of``: what a visitor or a model wrote is shown letter by letter.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

Message = dict[str, Any]
"""One entry of the Chatbot's value: ``role``, ``content`` (a list of parts), ``metadata``."""


class Notice(StrEnum):
    """What the page itself says in the log; also the class of its title, for the style."""

    WAITING = "notice-waiting"
    STOPPED = "notice-stopped"
    ERROR = "notice-error"


class LogFromBrowser(Protocol):
    """Gradio's ``ChatbotDataMessages``."""

    root: Sequence[Any]


def log_from_browser(payload: LogFromBrowser | None) -> list[Message]:
    """The log as it came with an event; of its parts only text, which is all this page puts there."""
    return [
        {
            "role": message.role,
            "metadata": message.metadata,
            "content": [
                {"type": "text", "text": part.text} for part in message.content if part.type == "text"
            ],
        }
        for message in (payload.root if payload else ())
    ]


def user_says(text: str) -> Message:
    return _message("user", text)


def model_says(text: str) -> Message:
    return _message("assistant", text)


def notice(kind: Notice, title: str, text: str = "") -> Message:
    """A message of the page: its title tells it from a message of the model."""
    message = _message("assistant", text)
    message["metadata"] = {"title": f'<span class="{kind}">{html.escape(title)}</span>'}
    return message


def is_notice(message: Mapping[str, Any]) -> bool:
    return title_of(message) is not None


def title_of(message: Mapping[str, Any]) -> str | None:
    """Of a notice; no other message has one."""
    return (message.get("metadata") or {}).get("title") or None


def text_of(message: Mapping[str, Any]) -> str:
    """What was written, unescaped."""
    return html.unescape("".join(part["text"] for part in message["content"]))


def up_to_last_question(log: Sequence[Message]) -> list[Message]:
    """The log without what followed the visitor's last message; empty if there is none."""
    for index in range(len(log) - 1, -1, -1):
        if log[index]["role"] == "user":
            return list(log[: index + 1])
    return []


def messages_for_model(log: Sequence[Message], system_prompt: str = "") -> list[dict[str, str]]:
    """What the model is given: no notices, and no question that got no answer but the last."""
    spoken = [message for message in log if not is_notice(message) and text_of(message)]
    kept = [
        message
        for message, next_message in zip(spoken, [*spoken[1:], None], strict=True)
        if message["role"] == "assistant" or next_message is None or next_message["role"] == "assistant"
    ]
    system = [{"role": "system", "content": system_prompt}] if system_prompt.strip() else []
    return [*system, *({"role": message["role"], "content": text_of(message)} for message in kept)]


def _message(role: str, text: str) -> Message:
    return {"role": role, "content": [{"type": "text", "text": html.escape(text)}]}
