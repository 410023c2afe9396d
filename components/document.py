"""The HTML document around the page, before any of Gradio's scripts has run.

Gradio adds a ``head`` of ours only once it has drawn, when language and theme are long decided and
the first picture is unstyled. So the head goes into the document on its way out.
"""

from __future__ import annotations

import html

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.words import word

FIRST = """<meta charset="utf-8" />
<title>Servescope</title>
<meta name="description" content="{tagline}">
<script src="assets/js/page/boot.js" data-lang="{lang}"></script>"""

LAST = """<link rel="icon" type="image/svg+xml" href="assets/icons/servescope.svg">
<link rel="stylesheet" href="assets/css/tokens.css">
<link rel="stylesheet" href="assets/css/page.css">
<link rel="stylesheet" href="assets/css/chat.css">
<link rel="stylesheet" href="assets/css/scope.css">
<link rel="stylesheet" href="assets/css/classroom.css">
<link rel="stylesheet" href="assets/css/lessons.css">
<link rel="stylesheet" href="assets/css/sizing.css">
<link rel="stylesheet" href="assets/css/traces.css">
<link rel="stylesheet" href="assets/css/api.css">
<script type="module" src="assets/js/page/page.js"></script>
<script type="module" src="assets/js/main.js"></script>
</head>"""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self' 'unsafe-inline' 'unsafe-eval'",  # Gradio evaluates its templates
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
    )
)
"""The page asks no other host for anything, and the browser holds it to that."""


class DocumentHead:
    """ASGI middleware that completes the document at ``/`` and leaves every other answer alone."""

    def __init__(self, app: ASGIApp, lang: str) -> None:
        self._app = app
        self._lang = lang

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _is_document(scope):
            await self._app(scope, receive, send)
            return
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": plain}, receive, _Completing(send, self._lang))


class _Completing:
    """Holds a response back until it is whole, then sends it with our head."""

    def __init__(self, send: Send, lang: str) -> None:
        self._send = send
        self._lang = lang
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        headers = MutableHeaders(scope=self._start)
        if headers.get("content-type", "").startswith("text/html"):
            self._body = complete(self._body.decode(), self._lang).encode()
            headers["content-length"] = str(len(self._body))
            headers["content-security-policy"] = CONTENT_SECURITY_POLICY
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": self._body})


def complete(document: str, lang: str) -> str:
    """Gradio's document with our head around its own."""
    tagline = html.escape(word(lang, "page.tagline"))
    for old, new in (
        ('<meta charset="utf-8" />', FIRST.format(lang=lang, tagline=tagline)),
        ("</head>", LAST),
        ('<link rel="manifest" href="/manifest.json" />', ""),  # there is none, and / may not be ours
    ):
        if old not in document:
            raise RuntimeError(
                f"Gradio's document has no {old}: components/document.py must follow its new form."
            )
        document = document.replace(old, new, 1)
    return document


def _is_document(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return path in ("", "/")
