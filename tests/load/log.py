"""What the engine did, from the files of ``--record``: every record of a run, each at its version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from backends.records import (
    AnyRecord,
    RequestArrived,
    RequestFinished,
    Snapshot,
    StepRecord,
    TokenEmitted,
    decode_record,
)
from backends.trace import file_lines


class Request(msgspec.Struct):
    """One request as the engine recorded it."""

    arrived: RequestArrived
    token_indices: list[int] = []
    endings: list[RequestFinished] = []
    """One, if all is well."""


class EngineLog:
    """``lines[v]`` is the record that came after ``v`` others."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.records: list[AnyRecord] = [decode_record(line) for line in lines]
        self.requests: dict[str, Request] = {}
        self.stray: list[str] = []
        """Tokens and endings of requests that never arrived."""
        for record in self.records:
            self._fold(record)

    def until(self, version: int) -> EngineLog:
        """The log as it was then."""
        return EngineLog(self.lines[:version])

    def requests_since(self, time: float) -> dict[str, Request]:
        """Requests by their id, without those that arrived before."""
        return {id_: request for id_, request in self.requests.items() if request.arrived.time >= time}

    def token_times(self) -> list[float]:
        return [record.time for record in self.records if isinstance(record, TokenEmitted)]

    def steps(self) -> list[StepRecord]:
        return [record for record in self.records if isinstance(record, StepRecord)]

    def _fold(self, record: AnyRecord) -> None:
        match record:
            case RequestArrived():
                self.requests[record.request_id] = Request(record)
            case TokenEmitted() | RequestFinished() if record.request_id not in self.requests:
                self.stray.append(f"{record.request_id}: {type(record).__name__} without arrival")
            case TokenEmitted():
                self.requests[record.request_id].token_indices.append(record.index)
            case RequestFinished():
                self.requests[record.request_id].endings.append(record)


def read_log(folder: Path, backend: str) -> EngineLog:
    """All files of one engine, which follow one another without a gap. Raises ``ValueError`` for one."""
    lines: list[bytes] = []
    for path in sorted(folder.glob(f"{backend}-*.jsonl.gz")):
        _, *records = (line.rstrip(b"\n") for line in file_lines(path))  # without the header that opens it
        if records and records[0].startswith(b'{"type":"snapshot"'):
            snapshot = decode_record(records[0])
            assert isinstance(snapshot, Snapshot)
            if snapshot.version != len(lines):
                raise ValueError(
                    f"{path.name} begins at {snapshot.version}; {len(lines)} records came before"
                )
            del records[:2]  # the state of that moment follows its snapshot
        lines += records
    return EngineLog(lines)
