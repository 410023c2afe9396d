"""The audit of dependencies: it fails on what is known, and never passes in silence."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import audit

HOLE = {
    "id": "GHSA-0000",
    "summary": "a hole",
    "affected": [
        {
            "package": {"name": "uvicorn", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}],
        }
    ],
}


class Osv(BaseHTTPRequestHandler):
    """A vulnerability service that knows one hole, in every version of uvicorn."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        has_hole = asked["package"]["name"] == "uvicorn"
        answer = json.dumps({"vulns": [HOLE]} if has_hole else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Osv) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


def test_a_known_vulnerability_fails_the_check(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["-s", "osv", "--osv-url", service]) == 1
    said = capsys.readouterr().out
    assert "uvicorn" in said
    assert "GHSA-0000, fixed in 999" in said
    assert "1 known vulnerabilities" in said


def test_where_nobody_answers_it_says_that_nothing_was_audited(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["-s", "osv", "--osv-url", "http://127.0.0.1:9/"]) == 0
    assert "NOT MADE" in capsys.readouterr().err


def test_a_service_that_knows_no_package_is_no_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.report([{"name": "one", "skip_reason": "not found"}]) == 0
    assert "NOT MADE" in capsys.readouterr().err


def test_packages_that_the_service_does_not_know_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"name": "one", "version": "1", "vulns": []}
    assert audit.report([known, {"name": "two", "skip_reason": "not found"}]) == 0
    assert "NOT asked about, since the service does not know them: two" in capsys.readouterr().out
