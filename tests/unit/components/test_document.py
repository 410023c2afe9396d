from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from components.document import DocumentHead, complete

DOCUMENT = """<!doctype html><html><head>
<meta charset="utf-8" />
<link rel="manifest" href="/manifest.json" />
</head><body></body></html>"""


@pytest.fixture
def client() -> TestClient:
    app = Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse(DOCUMENT)),
            Route("/other", lambda _: PlainTextResponse("<head></head>")),
        ]
    )
    app.add_middleware(DocumentHead, lang="auto")
    return TestClient(app)


def test_the_scripts_and_styles_are_in_the_document_itself(client: TestClient) -> None:
    text = client.get("/").text
    assert "<title>Servescope</title>" in text
    assert 'src="assets/js/page/boot.js" data-lang="auto"' in text
    assert text.index("charset") < text.index("<title>") < text.index("boot.js") < text.index("page.css")
    assert "manifest" not in text


def test_its_length_is_right_and_it_may_ask_no_other_host(client: TestClient) -> None:
    response = client.get("/")
    assert int(response.headers["content-length"]) == len(response.content)
    assert "default-src 'self'" in response.headers["content-security-policy"]


def test_everything_else_passes_untouched(client: TestClient) -> None:
    response = client.get("/other")
    assert response.text == "<head></head>"
    assert "content-security-policy" not in response.headers


def test_a_document_in_an_unknown_form_is_a_fault_not_an_unstyled_page() -> None:
    with pytest.raises(RuntimeError, match="meta charset"):
        complete("<html><head></head></html>", "en")
