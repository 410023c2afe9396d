"""Programs that read an answer token by token, and the same questions asked alone, for comparison."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.load.answers import Answer, Question, Route

PATIENCE = 120.0
"""Seconds without a byte: a limit for what goes wrong."""


async def ask_openai(client: httpx.AsyncClient, question: Question, backend: str) -> Answer:
    """``/v1/chat/completions``, streaming: a frame a token."""
    answer, finish_reason = Answer(question), None
    async for frame in _frames(client, answer, "/v1/chat/completions", _chat(question, backend, stream=True)):
        if "error" in frame:
            answer.problem = frame["error"]["message"]
            return answer
        answer.request_id = frame["id"].removeprefix("chatcmpl-")
        choice = frame["choices"][0]
        answer.text += choice["delta"].get("content") or ""
        finish_reason = finish_reason or choice["finish_reason"]
    if finish_reason is None and answer.problem is None:
        answer.problem = "The stream ended before the answer was complete"
    return answer


async def ask_teaching(client: httpx.AsyncClient, question: Question, backend: str) -> Answer:
    """``/generate_stream``: a frame a token."""
    answer = Answer(question)
    async for frame in _frames(client, answer, f"/generate_stream?backend={backend}", _prompt(question)):
        if "token" not in frame:
            answer.problem = str(frame)
            return answer
        answer.request_id = frame["sequence_id"]
        answer.text += frame["token"]
    return answer


async def ask_alone(client: httpx.AsyncClient, question: Question, backend: str) -> str:
    """The whole text of the same question, not streamed: the engine's word when it serves nobody else."""
    if question.route is Route.TEACHING:
        answer = await client.post(f"/generate?backend={backend}", json=_prompt(question), timeout=PATIENCE)
        return str(answer.raise_for_status().json()["generated_text"])
    answer = await client.post(
        "/v1/chat/completions", json=_chat(question, backend, stream=False), timeout=PATIENCE
    )
    return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])


def _chat(question: Question, backend: str, *, stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": question.prompt}]
    sampling = {"max_tokens": question.max_tokens, "temperature": 0}
    return {"model": backend, "messages": messages, "stream": stream, **sampling}


def _prompt(question: Question) -> dict[str, Any]:
    return {"prompt": question.prompt, "max_tokens": question.max_tokens, "temperature": 0}


async def _frames(
    client: httpx.AsyncClient, answer: Answer, path: str, body: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """The JSON of each server-sent event; a status that refuses becomes the answer's problem."""
    async with client.stream("POST", path, json=body, timeout=PATIENCE) as response:
        if response.status_code != 200:
            answer.problem = f"{response.status_code} {(await response.aread()).decode()[:200]}"
            return
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                answer.frame_times.append(time.monotonic())
                yield json.loads(line[6:])
