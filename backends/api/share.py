"""A request's part in its visitor's share, given back when it has been answered or its client has gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, Header, Request

from backends.api.body import VisitorId
from backends.api.control import holds_key
from backends.settings import Settings
from backends.visitors import Share, Visitors


def share_of(request: Request, visitors: Visitors, settings: Settings, page: str | None = None) -> Share:
    """Whoever asks: the page with this secret id, or another client, known by its address alone."""
    address = "" if request.client is None else request.client.host
    has_key = holds_key(settings, request.headers.get("authorization"))
    return visitors.share(address, page, has_key=has_key)


def callers_share(visitors: Visitors, settings: Settings) -> Any:
    """The default of a handler's ``share: Share``. The page names itself in the header
    ``Servescope-Visitor``."""

    async def open_share(
        request: Request, servescope_visitor: Annotated[VisitorId | None, Header()] = None
    ) -> AsyncIterator[Share]:
        with share_of(request, visitors, settings, servescope_visitor) as share:
            yield share

    return Depends(open_share)
