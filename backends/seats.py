"""Seats: the small numbers behind colour and letter of each request in flight."""

from __future__ import annotations

import threading
from collections import OrderedDict

REMEMBERED_VISITORS = 1024


class SeatAllocator:
    """Gives each request in flight the smallest free seat; thread-safe.

    A visitor gets the seat of its last request again when that is free, so that its colour stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seat_of: dict[str, int] = {}
        self._last_seat: OrderedDict[str, int] = OrderedDict()

    def take(self, request_id: str, visitor: str | None = None) -> int:
        """A seat that no other request in flight has, until ``release``."""
        with self._lock:
            if request_id in self._seat_of:
                raise ValueError(f"request {request_id!r} has seat {self._seat_of[request_id]} already")
            seat = self._choose(visitor)
            self._seat_of[request_id] = seat
            if visitor is not None:
                self._remember(visitor, seat)
            return seat

    def release(self, request_id: str) -> None:
        """Free the seat of a request; a request without one is ignored."""
        with self._lock:
            self._seat_of.pop(request_id, None)

    def _choose(self, visitor: str | None) -> int:
        taken = set(self._seat_of.values())
        last = None if visitor is None else self._last_seat.get(visitor)
        if last is not None and last not in taken:
            return last
        return next(seat for seat in range(len(taken) + 1) if seat not in taken)

    def _remember(self, visitor: str, seat: int) -> None:
        """The visitors longest gone are forgotten first, so the memory is bounded."""
        self._last_seat[visitor] = seat
        self._last_seat.move_to_end(visitor)
        if len(self._last_seat) > REMEMBERED_VISITORS:
            self._last_seat.popitem(last=False)
