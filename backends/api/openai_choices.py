"""What an answer looks like to OpenAI's clients: choices, deltas, log probabilities, usage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from backends.base import GenerationRequest, TokenChunk
from backends.records import FinishReason

REPLACEMENT = "\ufffd"
"""What a token that is half a character looks like."""


@runtime_checkable
class NamesTokens(Protocol):
    """An engine that can say what a token it did not choose looks like."""

    def token_text(self, token: int | str) -> str:
        """Of one of its ``top_logprobs``."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token that was chosen, and the most likely ones in its place."""

    text: str
    """What became visible with it: empty while a character is not whole."""
    logprob: float | None
    top: list[tuple[str, float]]


class Told(NamedTuple):
    num_characters: int
    num_logprobs: int


class News(NamedTuple):
    """What a stream has not told of a choice yet."""

    text: str
    logprobs: list[TokenLogprob]
    offsets: list[int]
    is_first: bool


@dataclass
class Choice:
    """One text of the answer as it grows."""

    index: int
    max_tokens: int
    text: str = ""
    num_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Where in the text each token begins."""
    finish_reason: FinishReason | None = None
    told: Told | None = None
    """How much of it a stream has told; ``None``: it has not begun."""

    @property
    def is_about_to_end(self) -> bool:
        """It has all tokens it may have, but its end has not come yet."""
        return self.num_tokens == self.max_tokens and self.finish_reason is None

    def take_news(self) -> News:
        """What was added since the last time."""
        told = self.told or Told(0, 0)
        news = News(
            self.text[told.num_characters :],
            self.logprobs[told.num_logprobs :],
            self.offsets[told.num_logprobs :],
            is_first=self.told is None,
        )
        self.told = Told(len(self.text), len(self.logprobs))
        return news

    def add(self, chunk: TokenChunk, logprob: TokenLogprob | None) -> None:
        """One token, or the end with what was held back until then."""
        if chunk.finish_reason is None:
            self.num_tokens += 1
        elif chunk.num_output_tokens is not None:
            self.num_tokens = chunk.num_output_tokens
        if logprob is not None:
            self.logprobs.append(logprob)
            self.offsets.append(len(self.text))
        self.text += chunk.text
        self.finish_reason = chunk.finish_reason


def token_logprob(chunk: TokenChunk, engine: object) -> TokenLogprob | None:
    """``None`` where the chunk has no token."""
    if chunk.finish_reason is not None:
        return None
    top: list[tuple[str, float]] = []
    if isinstance(engine, NamesTokens):
        top = [(engine.token_text(token), logprob) for token, logprob in chunk.top_logprobs]
    return TokenLogprob(chunk.text, chunk.logprob, top)


class Shape(Protocol):
    """How one of the two routes writes its answer."""

    id_prefix: str
    whole_object: str
    chunk_object: str

    def whole(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        """A choice that has ended."""

    def delta(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        """What a stream has not told of a choice yet."""


class ChatShape:
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def whole(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": _chat_logprobs(choice.logprobs) if with_logprobs else None,
            "finish_reason": choice.finish_reason,
        }

    def delta(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        """The role comes with the first token: a frame of its own would look like a token that took
        no time."""
        news = choice.take_news()
        delta = {"role": "assistant"} if news.is_first else {}
        if news.text or choice.finish_reason is None:
            delta["content"] = news.text
        return {
            "index": choice.index,
            "delta": delta,
            "logprobs": _chat_logprobs(news.logprobs) if with_logprobs and news.logprobs else None,
            "finish_reason": choice.finish_reason,
        }


class CompletionShape:
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def whole(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        logprobs = _completion_logprobs(choice.logprobs, choice.offsets) if with_logprobs else None
        return self._choice(choice, choice.text, logprobs)

    def delta(self, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
        news = choice.take_news()
        told = with_logprobs and bool(news.logprobs)
        logprobs = _completion_logprobs(news.logprobs, news.offsets) if told else None
        return self._choice(choice, news.text, logprobs)

    def _choice(self, choice: Choice, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }


def _chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    content = [
        _chat_token(token.text, token.logprob)
        | {"top_logprobs": [_chat_token(text, logprob) for text, logprob in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _chat_token(text: str, logprob: float | None) -> dict[str, Any]:
    """``bytes`` is null where the text does not tell them: in the middle of a character."""
    is_whole = bool(text) and REPLACEMENT not in text
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()) if is_whole else None}


def _completion_logprobs(tokens: Sequence[TokenLogprob], offsets: Sequence[int]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_by_text(token.top) for token in tokens],
        "text_offset": list(offsets),
    }


def _by_text(top: list[tuple[str, float]]) -> dict[str, float]:
    """Of several tokens with the same text the most likely is told: the shape has room for one."""
    told: dict[str, float] = {}
    for text, logprob in top:  # the most likely first
        told.setdefault(text, logprob)
    return told


class Reply:
    """One answer on its way: every choice, and what surrounds them."""

    def __init__(
        self,
        shape: Shape,
        model: str,
        requests: Sequence[GenerationRequest],
        num_prompt_tokens: list[int | None],
    ) -> None:
        """``num_prompt_tokens`` of each request; ``None`` until the server behind the engine tells."""
        self.shape = shape
        limits = [request.sampling.max_tokens for request in requests for _ in range(request.sampling.n)]
        self.choices = [Choice(index, max_tokens) for index, max_tokens in enumerate(limits)]
        self.num_prompt_tokens = num_prompt_tokens
        self._id = shape.id_prefix + requests[0].request_id
        self._created = int(time.time())
        self._model = model

    def usage(self) -> dict[str, int] | None:
        """A prompt is counted once, however many texts continue it. ``None``: nobody counted it."""
        known = [count for count in self.num_prompt_tokens if count is not None]
        if len(known) < len(self.num_prompt_tokens):
            return None
        num_prompt_tokens = sum(known)
        num_tokens = sum(choice.num_tokens for choice in self.choices)
        return {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt_tokens + num_tokens,
        }

    def whole(self, *, with_logprobs: bool) -> dict[str, Any]:
        choices = [self.shape.whole(choice, with_logprobs=with_logprobs) for choice in self.choices]
        return self.frame(self.shape.whole_object, choices) | {"usage": self.usage()}

    def frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
