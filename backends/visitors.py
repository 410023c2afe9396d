"""What one visitor may have in flight where strangers come (``--public``).

A visitor is a load of the page, which has a secret id, or, without one, a network address. Ids can be
made up, addresses cannot: all visitors of an address together have a larger limit, with room in it for
a classroom behind one router.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from types import TracebackType

from backends.errors import InvalidRequest, Overloaded
from backends.settings import Settings

RETRY_AFTER = 5.0
"""Seconds that a client is asked to wait."""
IPV6_HOME = 64
"""Bits of an IPv6 address that are a household's; the rest its devices choose as they like."""


@dataclass(frozen=True)
class Limit:
    """The most that may be in flight under one key."""

    key: str
    most: int
    whose: str
    """Begins the sentence that refuses."""
    of: str
    """Ends it."""


class Visitors:
    """Counts what each visitor has in flight. Lives on the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._in_flight: Counter[str] = Counter()

    def share(self, address: str, page: str | None = None, *, has_key: bool = False) -> Share:
        """What one caller holds until it is closed; nothing is counted for the instructor, nor where no
        strangers come. ``page``: the secret id of the page that asks."""
        if has_key or not self._settings.public:
            return Share(self._in_flight)
        network = network_of(address)
        visitor = Limit(
            f"visitor {page or network}",
            self._settings.visitor_requests,
            "You have",
            "a visitor of this server",
        )
        everybody = Limit(
            f"network {network}",
            self._settings.address_requests,
            "Visitors from your network address have",
            "one address",
        )
        return Share(self._in_flight, visitor, everybody)


class Share:
    """A context manager: when it closes, everything is given back."""

    def __init__(self, in_flight: Counter[str], *limits: Limit) -> None:
        self._in_flight = in_flight
        self._limits = limits
        self._held: Counter[str] = Counter()

    def take(self, count: int = 1) -> None:
        """Count so many requests more. Raises ``Overloaded``, or ``InvalidRequest`` for more than the
        limit at once; then none is counted."""
        self._take(count, self._limits)

    def take_run(self, count: int = 1) -> None:
        """Likewise for a race or an experiment, of which a visitor has one: it counts for the address."""
        self._take(count, self._limits[1:])

    def close(self) -> None:
        """Idempotent."""
        self._in_flight -= self._held  # drops what is down to zero
        self._held.clear()

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, count: int, limits: tuple[Limit, ...]) -> None:
        for limit in limits:
            _check(limit, self._in_flight[limit.key], count)
        for limit in limits:
            self._in_flight[limit.key] += count
            self._held[limit.key] += count


def network_of(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one, in which anybody has addresses without number."""
    try:
        ip = ip_address(address)
    except ValueError:  # no address: a test's client
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip_network((int(ip), IPV6_HOME), strict=False))


def _check(limit: Limit, in_flight: int, count: int) -> None:
    if count > limit.most:
        raise InvalidRequest(
            f"{count:,} requests are asked for at once; {limit.most:,} is the limit of {limit.of}."
        )
    if in_flight + count > limit.most:
        has = f"{in_flight:,} request{'' if in_flight == 1 else 's'}"
        more = f" and asked for {count:,} more" if count > 1 else ""
        raise Overloaded(
            f"{limit.whose} {has} waiting or running{more}; {limit.most:,} is the limit of {limit.of}. "
            f"Try again in {RETRY_AFTER:g} s.",
            retry_after=RETRY_AFTER,
        )
