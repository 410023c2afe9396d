"""What the trace says of servers that were only seen from outside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from backends.records import SCHEMA_VERSION, EngineConfig, Exposure, TraceHeader
from backends.remote.fleet import Server

MEASURED = {
    "batch": Exposure.NOT_EXPOSED,
    "kv": Exposure.NOT_EXPOSED,
    "queues": Exposure.DERIVED,
    "latency": Exposure.DERIVED,
}
NO_STEPS = "A remote server tells neither its steps nor their rows."
NO_BLOCKS = (
    "A remote server does not tell its blocks; only the sums in its /metrics are known, if it has any."
)
FORMULA = "TTFT = first token − arrival, ITL = gap between two tokens."
AT_THE_SOCKET = "Times are stamped at this machine's socket, as bytes are read: the network is in them."
COUNTED = "Tokens are counted by the server, chunk by chunk; those of one chunk came at the same time."
CHUNKS = (
    "This server does not tell how many tokens a chunk holds, so each counts as one until the end, where "
    "it tells the sum: a gap is between two chunks."
)


def header_of(backend: str, servers: Sequence[Server]) -> TraceHeader:
    """For those that are up. Their addresses are nobody's business."""
    facts = [server.facts for server in servers if server.facts is not None]
    limits = [fact.max_model_len for fact in facts if fact.max_model_len is not None]
    counting = COUNTED if all(fact.dialect.counts_live for fact in facts) else CHUNKS
    return TraceHeader(
        schema_version=SCHEMA_VERSION,
        backend=backend,
        model=", ".join(dict.fromkeys(fact.model for fact in facts)),
        device="device not exposed",
        dtype="dtype not exposed",
        engine=EngineConfig(max_model_len=min(limits, default=None)),
        shape=None,
        versions=_versions(servers),
        hardware="Remote server: its hardware is not exposed",
        started_at=datetime.now(UTC).isoformat(),
        start_time=time.monotonic(),
        measured=MEASURED,
        notes={
            "batch": NO_STEPS,
            "kv": NO_BLOCKS,
            "queues": f"From arrival and tokens alone: how long it waited is not told. {AT_THE_SOCKET}",
            "latency": f"{FORMULA} {AT_THE_SOCKET} {counting}",
        },
    )


def _versions(servers: Sequence[Server]) -> dict[str, str]:
    """Name of the server's kind → version; with its number where several differ."""
    told = [
        (server, server.facts.dialect.name, server.facts.version or "not exposed")
        for server in servers
        if server.facts is not None
    ]
    if len({(name, version) for _, name, version in told}) == 1:
        return {told[0][1]: told[0][2]}
    return {f"{name} ({server.client.title})": version for server, name, version in told}
