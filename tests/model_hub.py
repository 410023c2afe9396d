"""A model hub on loopback: as much of its HTTP interface as downloading a model takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by id; what was asked for; and the address."""

    def __init__(self) -> None:
        self.repositories: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.downloaded: list[str] = []
        self.url = ""


@contextmanager
def serve_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        served = hub

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Silent."""

    def _answer(self) -> None:
        match urlsplit(self.path).path.strip("/").split("/"):
            case ["api", "models", owner, name, "revision", _]:
                self._info(f"{owner}/{name}")
            case ["api", "models", owner, name, "tree", *_]:
                self._tree(f"{owner}/{name}")
            case [owner, name, "resolve", _, file]:
                self._file(self.served.repositories[f"{owner}/{name}"] / file)
            case _:
                self._send(404, b"{}")

    def _info(self, repository: str) -> None:
        if repository in self.served.gated:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif repository not in self.served.repositories:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        else:
            self._send(200, json.dumps({"id": repository, "sha": COMMIT, "siblings": []}).encode())

    def _tree(self, repository: str) -> None:
        files = sorted(self.served.repositories[repository].iterdir())
        entries = [
            {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": _etag(file)}
            for file in files
        ]
        self._send(200, json.dumps(entries).encode())

    def _file(self, file: Path) -> None:
        if self.command == "GET":
            self.served.downloaded.append(file.name)
        self._send(200, file.read_bytes(), {"ETag": f'"{_etag(file)}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _etag(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:40]
