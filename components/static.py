"""The page's own files: scripts, styles, words, and Plotly from the installed package."""

from __future__ import annotations

import gzip
import importlib.resources
from functools import cache
from pathlib import Path
from typing import Any

import plotly
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

ASSETS = Path(__file__).parent.parent / "assets"


class FreshFiles(StaticFiles):
    """Files that a browser may keep but asks about each time: a new version is seen at once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_static_routes(app: FastAPI) -> None:
    """``assets/<folder>/…`` and ``vendor/plotly.min.js``.

    A route a folder, since Gradio serves files of its own right under ``assets/``.
    """
    for folder in sorted(path for path in ASSETS.iterdir() if path.is_dir()):
        app.mount(f"/assets/{folder.name}", FreshFiles(directory=folder), name=f"assets-{folder.name}")
    app.add_api_route("/vendor/plotly.min.js", _plotly_script, include_in_schema=False)


def _plotly_script(request: Request) -> Response:
    etag = f'"plotly-{plotly.__version__}"'
    headers = {"Cache-Control": "no-cache", "ETag": etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            _plotly_gzipped(), media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"}
        )
    return Response(_plotly(), media_type="text/javascript", headers=headers)


def _plotly() -> bytes:
    return (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@cache
def _plotly_gzipped() -> bytes:
    """Five megabytes become one and a half; done once, for a room that opens the page together."""
    return gzip.compress(_plotly(), compresslevel=6)
