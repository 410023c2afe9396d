"""What is wrong with a server, in words: for ``/health``, and counted in ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from backends.api.feed import Hub
from backends.archive import Archive
from backends.base import Backend
from backends.records import State
from backends.registry import Registry

CODES = {
    State.CRASHED: "engine_crashed",
    State.RESTARTING: "engine_restarting",
    State.UNAVAILABLE: "engine_unavailable",
    State.READY: "engine_degraded",
    State.PAUSED: "engine_degraded",
}
"""States that are a problem where they have a reason: a restart by hand has none, and ready has one only
where a part is missing, such as one of several servers."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    backend: str | None
    """``None``: of the whole server."""
    code: str
    """One of those above, ``recording_failed`` or ``feeds_stopped``."""
    message: str


def problems_of(registry: Registry, hub: Hub, archive: Archive | None) -> Iterator[Problem]:
    """The engines' in the operator's order, then the server's own."""
    for backend in registry:
        name, state = backend.info.name, backend.state
        if state.reason is not None and state.state in CODES:
            yield Problem(backend=name, code=CODES[state.state], message=state.reason)
        if (failed := record_problem(backend, archive)) is not None:
            yield Problem(backend=name, code="recording_failed", message=failed)
    if hub.has_stopped:
        yield Problem(
            backend=None, code="feeds_stopped", message="Live panels and /metrics stand still; see the log."
        )


def record_problem(backend: Backend, archive: Archive | None) -> str | None:
    """Why its records are not being written."""
    return None if archive is None else archive.problem(backend.info.name)
