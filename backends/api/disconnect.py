"""Noticing that a client has gone while we are still working for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client closed the connection before there was a response."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of ``work``, which is cancelled when the client goes: then ``ClientGone``."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(until_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        await cancel(leaving, working)


async def until_gone(request: Request) -> None:
    """Return when the client has closed the connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel and wait until they have cleaned up. What they raised is theirs to tell."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
