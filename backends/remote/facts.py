"""What a server says of itself: its model, its kind, its version."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from backends.remote.chunks import MOST_TOKENS
from backends.remote.client import NotUp, ServerClient
from backends.remote.dialect import Dialect, dialect_of
from backends.remote.refusals import said_in

LONGEST_NAME = 256


class ServerFacts(NamedTuple):
    """What a server says of itself."""

    model: str
    dialect: Dialect
    version: str | None
    max_model_len: int | None


class _ModelCard(msgspec.Struct):
    id: str
    owned_by: Any = None
    max_model_len: Any = None


class _ModelList(msgspec.Struct):
    data: list[_ModelCard] | None = None


async def ask_what_it_is(client: ServerClient) -> ServerFacts:
    """Raises ``NotUp``."""
    page = await client.get("/v1/models")
    if page.status in (401, 403):
        raise NotUp(f"{client.title} refuses the key ({page.status}).")
    if 300 <= page.status < 400:
        raise NotUp(f"{client.title} redirects ({page.status}); its final address has to be given.")
    if page.status in (404, 405):  # it need not list them
        if client.wanted_model is None:
            raise NotUp(f"{client.title} does not list its models ({page.status}): one has to be named.")
        return ServerFacts(client.wanted_model, dialect_of(None), None, None)
    if page.status != 200:
        words = said_in(client.hide(page.body), page.content_type).words
        raise NotUp(
            f"{client.title} does not list its models ({page.status}{f': {words}' if words else ''})."
        )
    card = _choose(client, page.body)
    dialect = dialect_of(card.owned_by if isinstance(card.owned_by, str) else None)
    return ServerFacts(card.id, dialect, await _version(client, dialect), _limit(card.max_model_len))


def _choose(client: ServerClient, body: bytes) -> _ModelCard:
    try:
        cards = msgspec.json.decode(body, type=_ModelList).data or []
    except (msgspec.DecodeError, RecursionError):
        raise NotUp(f"{client.title} does not list its models as OpenAI's API does.") from None
    if client.wanted_model is not None:
        known = next((card for card in cards if card.id == client.wanted_model), None)
        owner = cards[0].owned_by if cards else None
        return known or _ModelCard(client.wanted_model, owner)
    if not cards:
        raise NotUp(f"{client.title} offers no model.")
    if not _is_name(cards[0].id):
        raise NotUp(f"{client.title} has a model whose name cannot be shown.")
    return cards[0]


async def _version(client: ServerClient, dialect: Dialect) -> str | None:
    """A detail: without it the server is as good."""
    path, field = dialect.version
    try:
        page = await client.get(path)
        told = msgspec.json.decode(page.body) if page.status == 200 else None
    except (NotUp, msgspec.DecodeError, RecursionError):
        return None
    version = told.get(field) if isinstance(told, dict) else None
    return version if isinstance(version, str) and _is_name(version) else None


def _limit(told: Any) -> int | None:
    is_count = isinstance(told, int) and not isinstance(told, bool)
    return told if is_count and 0 < told <= MOST_TOKENS else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()
