"""The errors an engine or the edge raises, each with the HTTP status it becomes.

A message is written for the person who reads it in the chat: the value, the limit, what to do.
"""

from __future__ import annotations


class ServescopeError(Exception):
    """Base. ``status`` is the HTTP status; ``code`` a stable word for programs."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        """The request field at fault, where there is one."""


class InvalidRequest(ServescopeError):
    """The request can never be served as it is: wrong value, too long, unsupported field."""

    status = 400
    code = "invalid_request"


class UnknownBackend(ServescopeError):
    """No backend of that name."""

    status = 404
    code = "unknown_backend"


class Overloaded(ServescopeError):
    """The bounded queue is full, or a visitor's share is used up. Try again later."""

    status = 429
    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds, for the ``Retry-After`` header."""


class EngineUnavailable(ServescopeError):
    """The backend cannot run here (missing dependency, unsupported architecture)."""

    status = 503
    code = "engine_unavailable"


class EngineDied(ServescopeError):
    """The engine's process ended while the request was in flight."""

    status = 503
    code = "engine_died"


class UpstreamError(ServescopeError):
    """A remote server failed, or said what it must not say."""

    status = 502
    code = "upstream_error"


class MisdeliveredResult(ServescopeError):
    """A result reached a call other than its own (``result_routing=shared`` lets that happen)."""

    status = 500
    code = "misdelivered_result"


class NotAllowed(ServescopeError):
    """Control needs the instructor key."""

    status = 401
    code = "key_required"


class NothingToStep(ServescopeError):
    """A single step was asked for, but the engine has nothing to compute or is not paused."""

    status = 409
    code = "nothing_to_step"
