"""A visitor's share: how much may be in flight, for whom it counts, and that it comes back."""

from __future__ import annotations

import pytest

from backends.errors import InvalidRequest, Overloaded
from backends.settings import Settings
from backends.visitors import Visitors, network_of


def visitors(**settings: int | bool) -> Visitors:
    return Visitors(Settings(**{"public": True, "visitor_requests": 2, "address_requests": 5} | settings))


def test_a_visitors_share_is_refused_beyond_its_limit_and_comes_back_when_it_closes() -> None:
    room = visitors()
    with room.share("192.0.2.1") as first, room.share("192.0.2.1") as second:
        first.take(2)
        with pytest.raises(
            Overloaded, match="You have 2 requests waiting or running; 2 is the limit"
        ) as told:
            second.take()
        assert told.value.retry_after > 0
    with room.share("192.0.2.1") as third:
        third.take(2)


def test_pages_of_one_address_have_shares_of_their_own_within_that_of_the_address() -> None:
    room = visitors()
    for page in ("ada", "ben"):
        room.share("192.0.2.1", page).take(2)
    last = room.share("192.0.2.1", "cem")
    with pytest.raises(Overloaded, match=r"address have 4 requests .* asked for 2 more; 5 is the limit"):
        last.take(2)
    last.take(1)
    room.share("192.0.2.2", "dia").take(2)


def test_what_is_refused_counts_nowhere() -> None:
    room = visitors()
    refused = room.share("192.0.2.1", "ada")
    with pytest.raises(InvalidRequest, match="3 requests are asked for at once; 2 is the limit"):
        refused.take(3)
    room.share("192.0.2.1", "ben").take_run(5)


def test_a_race_counts_for_the_address_alone() -> None:
    room = visitors()
    race = room.share("192.0.2.1")
    race.take_run(4)
    chat = room.share("192.0.2.1", "ada")
    chat.take(1)
    with pytest.raises(Overloaded):
        chat.take(1)
    race.close()
    race.close()
    chat.take(1)


@pytest.mark.parametrize(("settings", "has_key"), [({"public": False}, False), ({}, True)])
def test_nobody_is_counted_where_no_strangers_come_nor_is_the_instructor(
    settings: dict[str, bool], has_key: bool
) -> None:
    visitors(**settings).share("192.0.2.1", has_key=has_key).take(1000)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_household_is_one_address(address: str, network: str) -> None:
    assert network_of(address) == network
