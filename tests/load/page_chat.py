"""A visitor of the page without a browser: Gradio's queue, spoken as the page's own client speaks it.

GET  /config                    which function is the chat's, and what it is called with
POST /gradio_api/queue/join     a question
GET  /gradio_api/queue/data     messages: first the whole outputs, then differences, then the whole
"""

from __future__ import annotations

import html
import json
import time
from typing import Any

import httpx
from gradio_client.utils import apply_diff

from tests.load.answers import Answer, Question

LOG, REQUEST_ID = 0, 4
"""Places among the outputs: ``components/chat_events.py::Outputs``."""
PATIENCE = 120.0
"""Seconds without a message: a limit for what goes wrong."""


class PageChat:
    """What a browser knows of the chat after it has read the page's configuration."""

    def __init__(self, config: dict[str, Any]) -> None:
        names = {part["id"]: part["props"].get("elem_id") for part in config["components"]}
        self._prefix = config["api_prefix"]
        for function in config["dependencies"]:
            for part, event in function["targets"]:
                if (names.get(part), event) == ("chat-send", "click"):
                    self._function, self._trigger = function["id"], part
                    return
        raise LookupError("The page has no function behind chat-send")

    @classmethod
    async def of(cls, client: httpx.AsyncClient) -> PageChat:
        return cls((await client.get("/config")).raise_for_status().json())

    async def ask(self, client: httpx.AsyncClient, question: Question, backend: str, visitor: str) -> Answer:
        """Send one question in a fresh conversation, and read its answer to the end."""
        answer = Answer(question)
        session = visitor
        call = {
            "data": self._inputs(question, backend, visitor),
            "event_data": None,
            "fn_index": self._function,
            "trigger_id": self._trigger,
            "session_hash": session,
        }
        joined = await client.post(f"{self._prefix}/queue/join", json=call)
        if joined.status_code != 200:
            answer.problem = f"queue/join: {joined.status_code} {joined.text[:200]}"
            return answer
        events = client.stream(
            "GET", f"{self._prefix}/queue/data", params={"session_hash": session}, timeout=PATIENCE
        )
        async with events as response:
            outputs = _Outputs(answer)
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    outputs.see(json.loads(line[5:]))
        outputs.close()
        return answer

    @staticmethod
    def _inputs(question: Question, backend: str, visitor: str) -> list[Any]:
        """``bind_chat``'s inputs: text, log, backend, mode, system prompt, temperature, max_tokens, top_p,
        top_k, seed, and what the browser tells."""
        browser = {"lang": "en", "visitor": visitor}
        return [question.prompt, [], backend, None, "", 0, question.max_tokens, 1, 0, "", browser]


class _Outputs:
    """The outputs as the page shows them, message by message."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._shown: list[Any] | None = None
        self._ended = False

    def see(self, message: dict[str, Any]) -> None:
        match message["msg"]:
            case "process_generating" if not message["success"]:
                self._answer.problem = json.dumps(message["output"])[:300]
            case "process_generating":
                self._update(message["output"]["data"])
            case "process_completed":
                self._complete(message)
            case "unexpected_error":
                self._answer.problem = str(message["message"])

    def close(self) -> None:
        """The stream has ended."""
        if not self._ended and self._answer.problem is None:
            self._answer.problem = "The stream ended before the answer was complete"

    def _update(self, data: list[Any]) -> None:
        before = None if self._shown is None else _said(self._shown)
        if self._shown is None:
            self._shown = data
        else:
            self._shown = [apply_diff(old, new) for old, new in zip(self._shown, data, strict=True)]
        if _said(self._shown) != before:
            self._answer.frame_times.append(time.monotonic())
        self._answer.request_id = self._shown[REQUEST_ID]

    def _complete(self, message: dict[str, Any]) -> None:
        """The whole outputs come once more; what the differences gave must be the same."""
        self._ended = True
        if not message["success"] or self._shown is None:
            self._answer.problem = json.dumps(message["output"])[:300]
            return
        at_end, shown = _said(message["output"]["data"]), _said(self._shown)
        self._answer.text = at_end
        if at_end != shown:
            self._answer.problem = f"Updates gave {shown!r}, the end {at_end!r}"


def _said(outputs: list[Any]) -> str:
    """What stands under the question; with the title of a notice, where the page says it and no model."""
    parts = []
    for message in outputs[LOG]:
        if message["role"] == "assistant":
            title = (message["metadata"] or {}).get("title")
            parts += [f"[{title}] "] * bool(title)
            parts += [part["text"] for part in message["content"]]
    return html.unescape("".join(parts))
