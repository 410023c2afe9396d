"""What a server says in a stream: one JSON object an event, read strictly where it is used.

Counts below zero, text that is none, a number in quotes: each is refused in words, with its place.
Fields that are not used here may be anything.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

MOST_TOKENS = 100_000_000
"""No context is longer; what counts more is not believed."""

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class BadChunk(ValueError):
    """An event that is not what the API says; the message says why."""


class Usage(msgspec.Struct, frozen=True):
    """Counts, either of one text so far or, with no choices beside it, of the whole answer."""

    prompt_tokens: _Tokens | None = None
    completion_tokens: _Tokens | None = None


class Logprob(NamedTuple):
    """A token that was chosen, and the most likely ones in its place."""

    token: str
    logprob: float | None
    top: tuple[tuple[str, float], ...]


class _TopLogprob(msgspec.Struct):
    token: str
    logprob: float


class _ChatLogprob(_TopLogprob):
    top_logprobs: list[_TopLogprob] | None = None


class _Logprobs(msgspec.Struct):
    """Both shapes: ``content`` of a chat, three lists side by side of a completion."""

    content: list[_ChatLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(msgspec.Struct):
    """What a chunk adds to one text."""

    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    delta: _Delta | None = None
    """Of a chat."""
    text: str | None = None
    """Of a completion."""
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None

    @property
    def added(self) -> str:
        return (self.text or "") if self.delta is None else (self.delta.content or "")

    @property
    def has_news(self) -> bool:
        """Something was said, if only in thought: thoughts are tokens too, but no part of the answer."""
        thought = self.delta is not None and (self.delta.reasoning_content or self.delta.reasoning)
        return bool(self.added or thought)

    def token_logprobs(self) -> list[Logprob]:
        """One for each token of the chunk; empty where the server does not tell."""
        told = self.logprobs
        if told is None:
            return []
        if told.content is not None:
            return [
                Logprob(
                    item.token,
                    item.logprob,
                    tuple((top.token, top.logprob) for top in item.top_logprobs or ()),
                )
                for item in told.content
            ]
        tops = told.top_logprobs or [None] * len(told.tokens or ())
        if not len(told.tokens or ()) == len(told.token_logprobs or ()) == len(tops):
            raise BadChunk("log probabilities and tokens differ in number")
        return [
            Logprob(token, logprob, tuple((top or {}).items()))
            for token, logprob, top in zip(told.tokens or (), told.token_logprobs or (), tops, strict=True)
        ]


class Chunk(msgspec.Struct):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    code: Any = None

    @property
    def is_error(self) -> bool:
        """``{"error": …}``, or flat as SGLang and TensorRT-LLM write it."""
        return self.error is not None or self.object == "error"

    @property
    def status(self) -> int | None:
        """The HTTP status that an error would have had, where it says so."""
        code = self.error.get("code") if isinstance(self.error, dict) else self.code
        is_status = isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600
        return code if is_status else None


_decoder = msgspec.json.Decoder(Chunk)


def read_chunk(data: bytes) -> Chunk:
    """Raises ``BadChunk``."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadChunk(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadChunk("it is no JSON") from None
