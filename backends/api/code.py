"""The project's own code.

GET /code?symbol=backends/naive/model_worker.py::ModelWorker
                   → {"path", "symbol", "first_line", "num_lines", "source"}
GET /code/engines  → [{"engine", "folder", "files": [{"path", "about", "code_lines", "total_lines",
                     "symbols"}], "code_lines", "total_lines"}]
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from backends import code_view

LONGEST_NAME = 300


def create_router() -> APIRouter:
    router = APIRouter(tags=["code"])

    # Not coroutines: they read and parse files, which the event loop must not wait for.

    @router.get("/code")
    def code(symbol: Annotated[str, Query(min_length=1, max_length=LONGEST_NAME)]) -> Response:
        """The source of ``path::Symbol``, or of a whole file; 404 for what is not there."""
        return JSONResponse(msgspec.to_builtins(code_view.find(symbol)))

    @router.get("/code/engines")
    def engines() -> Response:
        """Each engine's files with their lines, counted."""
        return JSONResponse(msgspec.to_builtins(code_view.engines()))

    return router
