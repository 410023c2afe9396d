"""The HTML document around the page, before any of Gradio's scripts has run.

Gradio adds a ``head`` of ours only once it has drawn, when language and theme are long decided and
the first picture is unstyled. So the head goes into the document on its way out.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable

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

EMBEDDERS = ("https://huggingface.co",)
"""Who may show a public page in a frame, as a Space is shown. A page that is not public is in nobody's."""

POLICY = (
    "default-src 'self'",
    "script-src 'self' 'unsafe-eval' {inline}",  # Gradio compiles its templates and events where they run
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "worker-src 'self' blob:",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'self' {embedders}",
)
"""The page asks no other host for anything, and the browser holds it to that. Of scripts that stand in the
document only those run that were in it when it was sent."""
INLINE_SCRIPT = re.compile(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class DocumentHead:
    """ASGI middleware that completes the document at ``/`` and leaves every other answer alone."""

    def __init__(self, app: ASGIApp, lang: str, *, embeddable: bool = False) -> None:
        self._app = app
        self._lang = lang
        self._embedders = EMBEDDERS if embeddable else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _is_document(scope):
            await self._app(scope, receive, send)
            return
        plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": plain}, receive, _Completing(send, self._lang, self._embedders))


class _Completing:
    """Holds a response back until it is whole, then sends it with our head."""

    def __init__(self, send: Send, lang: str, embedders: tuple[str, ...]) -> None:
        self._send = send
        self._lang = lang
        self._embedders = embedders
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
            document = complete(self._body.decode(), self._lang)
            self._body = document.encode()
            headers["content-length"] = str(len(self._body))
            headers["content-security-policy"] = policy_for(document, self._embedders)
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


def policy_for(document: str, embedders: Iterable[str] = ()) -> str:
    """The policy under which every script that stands in this document runs, and no other one does."""
    digests = {hashlib.sha256(script.encode()).digest() for script in INLINE_SCRIPT.findall(document)}
    inline = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in sorted(digests))
    filled = (rule.format(inline=inline, embedders=" ".join(embedders)).strip() for rule in POLICY)
    return "; ".join(filled)


def _is_document(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return path in ("", "/")
