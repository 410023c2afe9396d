"""Recordings: which there are, and their lines.

GET /traces             {"opens_with": name | null, "recordings": [{"name", "backend", "model", …}]}
GET /traces/{name}      JSON lines, the header first; compressed as the file is
GET /record-schema      the JSON schema of a line, by which the page checks a file that it opens
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from backends.records import AnyRecord
from backends.shelf import Recording, Shelf

JSON_LINES = "application/x-ndjson"
PART = 256 * 1024


def create_router(shelf: Shelf) -> APIRouter:
    router = APIRouter(tags=["traces"])
    schema = msgspec.json.schema(AnyRecord)

    @router.get("/traces")
    def recordings() -> Response:
        """Not asynchronous, since the first call reads files."""
        found = [_describe(recording) for recording in shelf.all()]
        return JSONResponse({"opens_with": shelf.opens_with, "recordings": found})

    @router.get("/traces/{name}")
    def lines(name: str, request: Request) -> Response:
        """The file as it lies there; for a client that does not know gzip, what is in it."""
        recording = shelf.get(name)
        headers = {"Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
        if not recording.is_gzipped:
            return FileResponse(recording.path, media_type=JSON_LINES, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return StreamingResponse(_unpacked(recording), media_type=JSON_LINES, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return FileResponse(recording.path, media_type=JSON_LINES, headers=headers)

    @router.get("/record-schema")
    async def record_schema() -> Response:
        return JSONResponse(schema)

    return router


def _describe(recording: Recording) -> dict[str, Any]:
    survey, header = recording.survey, recording.survey.header
    return {
        "name": recording.name,
        "is_shipped": recording.is_shipped,
        "backend": header.backend,
        "model": header.model,
        "device": header.device,
        "dtype": header.dtype,
        "hardware": header.hardware,
        "versions": header.versions,
        "started_at": header.started_at,
        "duration": survey.duration,
        "num_records": survey.num_records,
        "num_requests": survey.num_requests,
        "num_steps": survey.num_steps,
        "num_bytes": recording.num_bytes,
    }


def _unpacked(recording: Recording) -> Iterator[bytes]:
    with gzip.open(recording.path) as file:
        while part := file.read(PART):
            yield part
