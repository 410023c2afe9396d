"""A server's refusal → an error of ours, in the server's words as far as a visitor may read them.

The bodies differ: OpenAI's ``{"error": {"message", "param"}}`` (vLLM, Ollama, llama.cpp), the same
without ``error`` around it (SGLang, TensorRT-LLM), ``{"error": "…"}`` (vLLM's 401), FastAPI's
``{"detail": […]}``, a line of text (Envoy, the gateway of llm-d), or nothing at all (its scheduler).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from backends.errors import InvalidRequest, Overloaded, ServescopeError, UpstreamError

LONGEST_WORDS = 400
LONGEST_FIELD = 64
LONGEST_RETRY_AFTER = 5.0
"""Seconds that a server may ask us to wait before another try; who asks for more is passed on."""
UNSAID_RETRY_AFTER = 1.0
"""For a client, where a busy server does not say."""

_AT_FAULT = {400, 413, 422}
"""The request is at fault, whoever else is asked."""
_PASSING = {429, 502, 503, 504}
"""Another try may do."""


class Page(NamedTuple):
    """An answer of a server in full."""

    status: int
    content_type: str
    body: bytes
    retry_after: float | None = None


class Refused(Exception):
    """The answer is something else than the stream that was asked for."""

    def __init__(self, page: Page) -> None:
        super().__init__(str(page.status))
        self.page = page


class TryAgain(Exception):
    """A failure that may pass, before the first token."""

    def __init__(self, error: ServescopeError, after: float = 0.0, *, is_unreachable: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        """What to raise when no more tries are left."""
        self.after = after
        """Seconds that the server asks for."""
        self.is_unreachable = is_unreachable


class Said(NamedTuple):
    words: str | None = None
    field: str | None = None


def said_in(body: bytes, content_type: str = "application/json") -> Said:
    """What a body says of an error, whatever its shape."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        is_text = content_type.partition(";")[0].strip() == "text/plain"
        return Said(_tidy(body.decode(errors="replace"))) if is_text else Said()
    return said_by(parsed)


def said_by(parsed: Any) -> Said:
    """The same of a body that is parsed already."""
    if isinstance(parsed, str):
        return Said(_tidy(parsed))
    if not isinstance(parsed, dict):
        return Said()
    if isinstance(parsed.get("error"), dict | str):
        return said_by(parsed["error"])
    if isinstance(parsed.get("message"), str):
        return Said(_tidy(parsed["message"]), _field(parsed.get("param")))
    detail = parsed.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        loc, words = detail[0].get("loc"), detail[0].get("msg")
        return Said(
            _tidy(words) if isinstance(words, str) else None,
            _field(loc[-1] if isinstance(loc, list) and loc else None),
        )
    return Said(_tidy(detail)) if isinstance(detail, str) else Said()


def error_of(page: Page, server: str) -> ServescopeError | TryAgain:
    """What to raise. ``server`` is how a visitor knows it."""
    status = page.status
    if status in (401, 403):  # its words may repeat the key
        return UpstreamError(f"{server} refuses the key of this page ({status}).")
    if 300 <= status < 400:
        return UpstreamError(f"{server} redirects ({status}); its final address has to be given.")
    said = said_in(page.body, page.content_type)
    message = f"{server}: {said.words}" if said.words else f"{server} answered {status}, without a reason."
    if status in _AT_FAULT:
        return InvalidRequest(message, field=said.field)
    if status not in _PASSING:
        return UpstreamError(message if said.words is None else f"{server} ({status}): {said.words}")
    after = page.retry_after
    error = (
        Overloaded(message, retry_after=UNSAID_RETRY_AFTER if after is None else after)
        if status == 429
        else UpstreamError(message)
    )
    return error if after is not None and after > LONGEST_RETRY_AFTER else TryAgain(error, after or 0.0)


def is_about_stream_options(page: Page) -> bool:
    """The server does not know ``stream_options``, or not all of what is in it."""
    names = (b"stream_options", b"include_usage", b"continuous_usage_stats")
    return page.status in _AT_FAULT and any(name in page.body for name in names)


def _tidy(words: str) -> str | None:
    """One line, not too long; ``None`` for nothing."""
    words = re.sub(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+", " ", words).strip()
    words = words.encode(errors="replace").decode()
    return (words if len(words) <= LONGEST_WORDS else words[:LONGEST_WORDS] + "…") or None


def _field(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    name = name.removeprefix("body.")  # as vLLM writes it
    return name if 0 < len(name) <= LONGEST_FIELD and name.isprintable() else None
