"""One answer as it comes: chunks → tokens, counted as the server counts them.

A chunk is not a token. Where every chunk says how many tokens there are so far, the difference to the
last one is how many it brought, and all of them came at the same moment. Where it does not, a chunk
that says something is counted as one, and the server's sum at the end (``usage``) puts it right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from backends.base import GenerationRequest, TokenChunk, sample_id
from backends.errors import UpstreamError
from backends.records import FinishReason, TokenEmitted
from backends.remote.chunks import Choice, Chunk, Logprob, Usage

FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
}
"""As servers write them. All others (``abort``, ``content_filter``, ``timeout`` …) end no answer."""


@dataclass
class _Text:
    """One of the ``n`` texts."""

    sample: int
    request_id: str
    num_tokens: int = 0
    """Those that were emitted."""
    counted: int | None = None
    """By the server, so far; ``None`` where it does not count live."""
    held: str = ""
    """Said by a chunk without a new token: it goes with the next, or with the end."""
    finish_reason: FinishReason | None = None
    finish_time: float = 0.0


@dataclass
class Arrived:
    """What a chunk brought: for the records, and for whoever asked."""

    records: list[TokenEmitted] = field(default_factory=list)
    tokens: list[TokenChunk] = field(default_factory=list)


class Answer:
    """Everything received of one request."""

    def __init__(self, request: GenerationRequest, server: str) -> None:
        """``server`` is how a visitor knows it."""
        self._server = server
        self._max_tokens = request.sampling.max_tokens
        self._texts = [
            _Text(sample, sample_id(request.request_id, sample)) for sample in range(request.sampling.n)
        ]
        self._usage = Usage()
        """Of the whole answer."""

    @property
    def has_begun(self) -> bool:
        return any(text.num_tokens for text in self._texts)

    @property
    def num_tokens(self) -> int:
        return sum(text.num_tokens for text in self._texts)

    @property
    def is_complete(self) -> bool:
        """Every text has said why it ended; the usage may still follow."""
        return all(text.finish_reason is not None for text in self._texts)

    def take(self, chunk: Chunk, time: float) -> Arrived:
        """Raises ``UpstreamError`` for what cannot be true."""
        choices = chunk.choices or []
        if chunk.usage is not None and (not choices or len(self._texts) == 1):
            self._usage = self._believe(chunk.usage)
        arrived = Arrived()
        for choice in choices:
            if choice.index >= len(self._texts):
                raise UpstreamError(
                    f"{self._server} sent text {choice.index + 1} where {len(self._texts)} were asked for."
                )
            live = chunk.usage.completion_tokens if chunk.usage is not None and len(choices) == 1 else None
            self._add(self._texts[choice.index], choice, live, time, arrived)
        return arrived

    def endings(self) -> list[tuple[str, float, TokenChunk]]:
        """Request id, time and last chunk of each text. Raises ``UpstreamError`` if one has no end."""
        if not self.is_complete:
            raise self.broken_off()
        return [
            (
                text.request_id,
                text.finish_time,
                TokenChunk(
                    text=text.held,
                    index=-1,
                    sample=text.sample,
                    finish_reason=text.finish_reason,
                    num_prompt_tokens=self._usage.prompt_tokens or None,  # no prompt has none
                    num_output_tokens=self._num_output_tokens(text),
                ),
            )
            for text in self._texts
        ]

    def broken_off(self) -> UpstreamError:
        """For a connection that ended before the answer did."""
        so_far = f"after {self.num_tokens:,} tokens" if self.has_begun else "before its first token"
        return UpstreamError(f"{self._server} broke off the answer {so_far}.")

    def _num_output_tokens(self, text: _Text) -> int | None:
        """The server's own count of one text, unless it counts none where there were some."""
        count = self._usage.completion_tokens if len(self._texts) == 1 else text.counted
        return None if count == 0 and text.num_tokens else count

    def _add(self, text: _Text, choice: Choice, live: int | None, time: float, arrived: Arrived) -> None:
        logprobs = choice.token_logprobs()
        count = self._num_new(text, choice, live, len(logprobs))
        said = text.held + choice.added
        text.held = "" if count else said
        for offset, (part, logprob) in enumerate(_parts(said, count, logprobs)):
            index = text.num_tokens + offset
            arrived.records.append(
                TokenEmitted(request_id=text.request_id, index=index, step_id=None, time=time)
            )
            arrived.tokens.append(_token(part, index, text.sample, logprob))
        text.num_tokens += count
        if choice.finish_reason is not None and text.finish_reason is None:
            text.finish_reason, text.finish_time = self._reason(choice.finish_reason), time

    def _num_new(self, text: _Text, choice: Choice, live: int | None, num_logprobs: int) -> int:
        """Tokens that a chunk brought. Whether a server counts live shows with the first of them."""
        if text.counted is None and (text.num_tokens or not live):
            return num_logprobs or int(choice.has_news)
        before = text.counted or 0
        text.counted = before if live is None else live
        if not before <= text.counted <= self._max_tokens:
            raise UpstreamError(
                f"{self._server} counts {live:,} tokens after {before:,}, "
                f"where {self._max_tokens:,} were asked for."
            )
        return text.counted - before

    def _believe(self, usage: Usage) -> Usage:
        """Raises ``UpstreamError`` for more tokens than could have been made."""
        most = self._max_tokens * len(self._texts)
        if (usage.completion_tokens or 0) > most:
            raise UpstreamError(
                f"{self._server} counts {usage.completion_tokens:,} tokens, where {most:,} were asked for."
            )
        return usage

    def _reason(self, name: str) -> FinishReason:
        if name not in FINISH_REASONS:
            raise UpstreamError(f"{self._server} ended the answer: {name[:40]!r}.")
        return FINISH_REASONS[name]


def _parts(said: str, count: int, logprobs: list[Logprob]) -> Iterator[tuple[str, Logprob | None]]:
    """A text for each token: its own where the server names it, else all of it with the last."""
    names = [logprob.token for logprob in logprobs]
    is_split = len(names) == count and "".join(names) == said
    for offset in range(count):
        text = names[offset] if is_split else said if offset == count - 1 else ""
        yield text, logprobs[offset] if len(logprobs) == count else None


def _token(text: str, index: int, sample: int, logprob: Logprob | None) -> TokenChunk:
    if logprob is None:
        return TokenChunk(text=text, index=index, sample=sample)
    return TokenChunk(
        text=text, index=index, sample=sample, logprob=logprob.logprob, top_logprobs=logprob.top
    )
