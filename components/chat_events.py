"""What happens when a visitor sends, retries, edits, stops or clears."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import gradio as gr

from backends.base import Backend, GenerationRequest, SamplingParams, TokenChunk
from backends.errors import ServescopeError
from backends.records import Source, State
from backends.registry import Registry
from backends.visitors import Share, Visitors
from components.answering import Answer
from components.browser import Browser
from components.conversation import (
    Message,
    Notice,
    messages_for_model,
    model_says,
    notice,
    text_of,
    title_of,
    up_to_last_question,
    user_says,
)
from components.sampling import sampling_params
from components.tab import OnChatError
from components.words import word, words

Outputs = tuple[Any, ...]
"""Updates for the log, the input, Send, Stop and the place of the request id, in this order."""

LONGEST_SILENCE = 2.0
"""Seconds after which the same is said again while an answer waits. A page that has gone without closing its
feed is missed only then; but each telling costs milliseconds, and many may wait."""


@dataclass(frozen=True)
class Asked:
    """With what a visitor asks: everything beside the conversation."""

    backend: Backend
    mode: str | None
    system_prompt: str
    sampling: SamplingParams
    browser: Browser
    share: Share

    @property
    def lang(self) -> str:
        return self.browser.lang


class ChatEvents:
    """The handlers. ``inputs`` are always: backend, mode, system prompt, sampling, browser."""

    def __init__(self, registry: Registry, visitors: Visitors, on_error: OnChatError) -> None:
        self._registry = registry
        self._visitors = visitors
        self._on_error = on_error
        self._answers: dict[str, Answer] = {}
        """The answers under way, one a browser session: how Stop finds what it stops."""

    async def send(
        self, request: gr.Request, text: str, log: list[Message], *inputs: Any
    ) -> AsyncIterator[Outputs]:
        async with aclosing(
            self._answer(request, [*log, user_says(text)], inputs, clear_input=True)
        ) as answer:
            async for outputs in answer:
                yield outputs

    async def example(
        self, request: gr.Request, chosen: gr.SelectData, log: list[Message], *inputs: Any
    ) -> AsyncIterator[Outputs]:
        async with aclosing(self._answer(request, [*log, user_says(chosen.value["text"])], inputs)) as answer:
            async for outputs in answer:
                yield outputs

    async def retry(self, request: gr.Request, log: list[Message], *inputs: Any) -> AsyncIterator[Outputs]:
        async with aclosing(self._answer(request, up_to_last_question(log), inputs)) as answer:
            async for outputs in answer:
                yield outputs

    async def edit(
        self, request: gr.Request, edited: gr.EditData, log: list[Message], *inputs: Any
    ) -> AsyncIterator[Outputs]:
        rewritten = [*log[: cast(int, edited.index)], user_says(edited.value)]
        async with aclosing(self._answer(request, rewritten, inputs)) as answer:
            async for outputs in answer:
                yield outputs

    def stop(self, request: gr.Request) -> None:
        answer = self._answers.get(_session(request))
        if answer is not None:
            answer.stop()

    def clear(self, request: gr.Request) -> None:
        """The log is empty already; an answer under way must not fill it again."""
        answer = self._answers.get(_session(request))
        if answer is not None:
            answer.discard()

    async def _answer(
        self, request: gr.Request, log: list[Message], inputs: Sequence[Any], *, clear_input: bool = False
    ) -> AsyncGenerator[Outputs, None]:
        """Stream the answer to the last message of ``log``."""
        session = _session(request)
        if session in self._answers:  # one answer at a time; the button says so too
            yield _outputs()
            return
        browser = Browser.from_event(inputs[-1])
        if not log or not text_of(log[-1]).strip():
            yield _outputs(_with_notice(log[:-1], word(browser.lang, "chat.empty_message")))
            return
        try:
            asked = self._asked(request, browser, *inputs[:-1])
        except ServescopeError as error:
            known = inputs[0] if inputs[0] in self._registry.names else ""
            self._on_error(known, None, error)
            yield _outputs([*log, notice(Notice.ERROR, word(browser.lang, "chat.error"), error.message)], "")
            return
        request_id = f"chat-{uuid.uuid4().hex}"
        answer = self._answers[session] = Answer(_chunks(request_id, log, asked))
        entry = "" if clear_input else gr.skip()
        last, silent_until = None, 0.0
        try:
            async with aclosing(answer.updates()) as updates:
                async for _ in updates:
                    shown = [] if answer.discarded else [*log, *_said(answer, asked)]
                    if shown == last and not answer.done and time.monotonic() < silent_until:
                        continue
                    if last is None or answer.done:
                        yield _outputs(shown, entry, answer.done, request_id)
                    else:
                        yield _more(shown, request_id, asked.lang)
                    entry = gr.skip()  # what is typed meanwhile stays
                    last, silent_until = shown, time.monotonic() + LONGEST_SILENCE
        finally:
            del self._answers[session]
            if answer.error is not None:
                self._on_error(asked.backend.info.name, request_id, answer.error)

    def _asked(
        self,
        request: gr.Request,
        browser: Browser,
        backend: str,
        mode: str | None,
        system_prompt: str,
        *sampling: Any,
    ) -> Asked:
        chosen = self._registry.get(backend)
        share = self._visitors.share(request.client.host, browser.visitor)
        params = sampling_params(chosen.info, *sampling)
        return Asked(chosen, mode or None, system_prompt, params, browser, share)


async def _chunks(request_id: str, log: list[Message], asked: Asked) -> AsyncGenerator[TokenChunk, None]:
    """Ask the engine; closing this ends the request."""
    with asked.share as share:
        share.take()
        messages = messages_for_model(log, asked.system_prompt)
        prompt = await asked.backend.render_chat(messages)
        chunks = asked.backend.generate(
            GenerationRequest(
                request_id=request_id,
                prompt=prompt,
                messages=tuple(messages),
                sampling=asked.sampling,
                source=Source.CHAT,
                mode=asked.mode,
                visitor=asked.browser.visitor,
            )
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk


def _said(answer: Answer, asked: Asked) -> list[Message]:
    """What stands under the question now."""
    said = [model_says(answer.text)] if answer.text else []
    if answer.error is not None:
        title = word(asked.lang, "chat.error.partial" if answer.text else "chat.error")
        said.append(notice(Notice.ERROR, title, answer.error.message))
    elif not answer.text:
        said.append(_nothing_yet(answer, asked))
    return said


def _nothing_yet(answer: Answer, asked: Asked) -> Message:
    """In place of an answer without a letter."""
    if answer.stopped:
        return notice(Notice.STOPPED, word(asked.lang, "chat.stopped"))
    if answer.done:
        return notice(Notice.STOPPED, word(asked.lang, "chat.empty_answer"))
    return _waiting(asked) or model_says("")


def _waiting(asked: Asked) -> Message | None:
    """What an answer waits for, if the engine is not simply at work."""
    state = asked.backend.state
    match state.state:
        case State.IDLE | State.STARTING:
            key = "chat.starting"
        case State.CRASHED | State.RESTARTING:
            key = "chat.restarting"
        case State.PAUSED:
            key = "chat.paused"
        case _:
            return _only_at_the_end(asked)
    percent = "" if state.progress is None else f"{state.progress:.0%}"
    detail = " · ".join(part for part in (state.reason, percent) if part)
    return notice(Notice.WAITING, word(asked.lang, key, backend=asked.backend.info.title), detail)


def _only_at_the_end(asked: Asked) -> Message | None:
    """In some modes there is nothing to read until everything is done."""
    sentence = words(asked.lang).get(f"chat.running.{asked.mode}")
    return None if sentence is None else notice(Notice.WAITING, sentence)


def _with_notice(log: list[Message], sentence: str) -> list[Message]:
    """The log with an error at its end, once however often it is made."""
    said = notice(Notice.ERROR, sentence)
    if log and title_of(log[-1]) == title_of(said):
        return log
    return [*log, said]


def _outputs(log: Any = None, entry: Any = None, done: bool = True, request_id: Any = None) -> Outputs:
    """One update of the page; what is not given stays as it is."""
    return (
        gr.skip() if log is None else log,
        gr.skip() if entry is None else entry,
        gr.update(interactive=done),
        gr.update(interactive=not done),
        gr.skip() if request_id is None else request_id,
    )


def _more(log: list[Message], request_id: str, lang: str) -> Outputs:
    """A later update, ten a second for each answer: the buttons are told their words again, which changes
    nothing. For whatever is an update, be it a skip, Gradio builds the component anew, which takes three
    times as long as a plain value."""
    return log, gr.skip(), word(lang, "chat.send"), word(lang, "chat.stop"), request_id


def _session(request: gr.Request) -> str:
    """One load of the page, as Gradio counts them."""
    assert request.session_hash is not None, "an event of a page has a session"
    return request.session_hash
