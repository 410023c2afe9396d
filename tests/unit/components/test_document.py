from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from components.document import EMBEDDERS, DocumentHead, complete, policy_for

DOCUMENT = """<!doctype html><html><head>
<meta charset="utf-8" />
<link rel="manifest" href="/manifest.json" />
</head><body><script type="a">one();</script><script src="x.js"></script></body></html>"""
ONE = "'sha256-0+WO/BLOFX4yaxuOgr4enhLoCeodx+iRke4LxGBVui8='"


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


def test_of_scripts_in_the_document_only_those_that_came_with_it_run(client: TestClient) -> None:
    policy = dict(
        rule.split(" ", 1) for rule in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert policy["script-src"] == f"'self' 'unsafe-eval' {ONE}"
    assert policy["frame-ancestors"] == "'self'"


def test_a_public_page_can_be_shown_as_a_space_is() -> None:
    assert policy_for("").endswith("frame-ancestors 'self'")
    assert policy_for("", EMBEDDERS).endswith("frame-ancestors 'self' https://huggingface.co")


def test_everything_else_passes_untouched(client: TestClient) -> None:
    response = client.get("/other")
    assert response.text == "<head></head>"
    assert "content-security-policy" not in response.headers


def test_a_document_in_an_unknown_form_is_a_fault_not_an_unstyled_page() -> None:
    with pytest.raises(RuntimeError, match="meta charset"):
        complete("<html><head></head></html>", "en")
