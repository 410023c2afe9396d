"""How phones find this server.

GET /join              → {"loopback_only": bool, "hosts": ["192.168.1.5"]}
GET /qr.svg?link=…     the QR code of a link to this server, as an SVG picture
"""

from __future__ import annotations

import io
import socket
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

import segno
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from backends.errors import InvalidRequest
from backends.settings import Settings

LONGEST_LINK = 500
QUIET_ZONE = 4
"""Modules of white around a code: fewer, and phones do not find it."""
NOWHERE = ("192.0.2.1", 9)
"""An address for documentation: asking for the way there sends nothing."""


def create_router(settings: Settings) -> APIRouter:
    router = APIRouter(tags=["join"])

    @router.get("/join")
    async def join(request: Request) -> Response:
        """This machine's addresses are told only to whoever sits at it."""
        is_here = request.client is not None and _is_loopback(request.client.host)
        hosts = own_hosts() if is_here and not settings.is_loopback and not settings.public else []
        return JSONResponse({"loopback_only": settings.is_loopback, "hosts": hosts})

    @router.get("/qr.svg")
    async def qr(request: Request, link: Annotated[str, Query(max_length=LONGEST_LINK)]) -> Response:
        """400 for a link to anywhere else."""
        _check_link(link, request)
        picture = io.BytesIO()
        segno.make(link, micro=False).save(
            picture, kind="svg", border=QUIET_ZONE, light="white", xmldecl=False, omitsize=True
        )
        return Response(picture.getvalue(), media_type="image/svg+xml")

    return router


def own_hosts() -> list[str]:
    """The address by which this machine's network knows it; empty without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(NOWHERE)
        except OSError:
            return []
        host = str(asking.getsockname()[0])
    return [] if _is_loopback(host) else [host]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_link(link: str, request: Request) -> None:
    try:
        parts = urlsplit(link)
    except ValueError:
        raise InvalidRequest("link is no URL.", field="link") from None
    if parts.scheme not in ("http", "https") or not link.isprintable():
        raise InvalidRequest("link must begin with http:// or https://.", field="link")
    asked = {request.headers.get("host"), request.headers.get("x-forwarded-host")}
    if parts.netloc not in asked and parts.hostname not in own_hosts():
        raise InvalidRequest(f"link leads to {parts.netloc!r}, which is not this server.", field="link")
