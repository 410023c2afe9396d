"""Each request in flight has a seat of its own, as small as can be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.seats import REMEMBERED_VISITORS, SeatAllocator


def test_seats_are_given_from_the_smallest() -> None:
    seats = SeatAllocator()

    assert [seats.take(name) for name in "abc"] == [0, 1, 2]


def test_a_released_seat_is_the_next_to_be_given() -> None:
    seats = SeatAllocator()
    for name in "abc":
        seats.take(name)
    seats.release("b")

    assert seats.take("d") == 1


def test_a_visitor_gets_its_last_seat_again() -> None:
    seats = SeatAllocator()
    seats.take("a", "ann")
    seats.take("b", "bob")
    seats.release("a")
    seats.release("b")

    assert seats.take("c", "bob") == 1
    assert seats.take("d", "ann") == 0


def test_a_visitor_whose_last_seat_is_taken_gets_the_smallest_free_one() -> None:
    seats = SeatAllocator()
    seats.take("a", "ann")
    seats.release("a")
    seats.take("b")

    assert seats.take("c", "ann") == 1


def test_two_requests_of_one_visitor_have_two_seats() -> None:
    seats = SeatAllocator()

    assert {seats.take("a", "ann"), seats.take("b", "ann")} == {0, 1}


def test_a_request_cannot_take_two_seats() -> None:
    seats = SeatAllocator()
    seats.take("a")

    with pytest.raises(ValueError, match="'a' has seat 0 already"):
        seats.take("a")


def test_releasing_twice_is_harmless() -> None:
    seats = SeatAllocator()
    seats.take("a")
    seats.release("a")
    seats.release("a")

    assert seats.take("b") == 0


def test_the_visitors_longest_gone_are_forgotten() -> None:
    seats = SeatAllocator()
    seats.take("stays")
    seats.take("first", "first visitor")
    for number in range(REMEMBERED_VISITORS):
        seats.take(f"r{number}", f"v{number}")
        seats.release(f"r{number}")
    seats.release("first")
    seats.release("stays")

    assert seats.take("again", "first visitor") == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.sampled_from(["ann", "bob"]))))
def test_no_two_requests_in_flight_share_a_seat(events: list[tuple[int, str | None]]) -> None:
    seats = SeatAllocator()
    held: dict[str, int] = {}
    for number, visitor in events:
        name = f"r{number}"
        if name in held:
            seats.release(name)
            del held[name]
        else:
            seat = seats.take(name, visitor)
            assert seat not in held.values()
            held[name] = seat
