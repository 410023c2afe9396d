"""How large a workload may be: small for strangers, so that one of them cannot fill a room's engine."""

from __future__ import annotations

import msgspec

from backends.errors import InvalidRequest, NotAllowed
from backends.settings import Settings
from backends.workloads.workload import LONGEST_WINDOW, MOST_STUDENTS, Workload

MOST_WORDS = 2000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most of each."""

    students: int
    window: float
    prompt_words: int
    """Of one question, the shared ones included."""
    output_tokens: int


def limits_of(settings: Settings, *, may_control: bool) -> Limits:
    """``may_control``: whoever asks could also pause and restart the engines."""
    if may_control:
        return Limits(
            students=MOST_STUDENTS,
            window=LONGEST_WINDOW,
            prompt_words=MOST_WORDS,
            output_tokens=settings.max_tokens,
        )
    return Limits(students=16, window=30.0, prompt_words=100, output_tokens=min(64, settings.max_tokens))


def check_workload(workload: Workload, limits: Limits, largest: Limits) -> None:
    """Raises ``InvalidRequest`` for what nobody may ask, ``NotAllowed`` for what needs the key."""
    for field, value in _sizes(workload).items():
        limit, most = getattr(limits, field), getattr(largest, field)
        if value > most:
            raise InvalidRequest(f"{field} is {value:g}; the limit is {most:g}.", field=field)
        if value > limit:
            raise NotAllowed(
                f"{field} is {value:g}; without the instructor key the limit is {limit:g}.", field=field
            )


def _sizes(workload: Workload) -> dict[str, float]:
    return {
        "students": workload.students,
        "window": workload.window,
        "prompt_words": workload.shared_words + max(workload.prompt_words),
        "output_tokens": max(workload.output_tokens, default=0),
    }
