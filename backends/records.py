"""The data model: what an engine emits, and the only source of what the screen shows.

One definition serves four places: the messages of a child process, the live feed, the trace
file (JSON lines) and the tests. Every record is a frozen struct with a ``type`` tag, so that
``decode_record(encode_record(r)) == r`` and a malformed record is refused with its path.

Times are seconds on the system-wide monotonic clock (``time.monotonic()``), the same clock for
every process of one machine. ``None`` means "this engine does not expose it"; ``0`` means zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

SCHEMA_VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Exposure(StrEnum):
    """How a panel knows what it shows."""

    MEASURED = "measured"
    """The engine reported it."""
    DERIVED = "derived"
    """Computed from measured records; the formula is on hover."""
    NOT_EXPOSED = "not_exposed"
    """This engine does not tell; the panel says so instead of drawing something."""


class Phase(StrEnum):
    """What a row does in a step."""

    PREFILL = "prefill"
    """Prompt tokens are computed."""
    DECODE = "decode"
    """One new token for a request."""
    FINISHED = "finished"
    """Done, but kept in a static batch until the longest row is done: computed for nothing."""


class Source(StrEnum):
    """Where a request came from."""

    CHAT = "chat"
    API = "api"
    WORKLOAD = "workload"


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """The model emitted its end-of-sequence token, or a stop string was met."""
    LENGTH = "length"
    """``max_tokens`` or the model's limit was reached."""
    ABORT = "abort"
    """Whoever asked went away or pressed Stop."""
    ERROR = "error"
    """The engine failed; the record carries a message."""


class State(StrEnum):
    """The life of an engine, as ``/health`` and the state dot show it."""

    IDLE = "idle"
    """Not started yet: it starts when it is first chosen or asked."""
    STARTING = "starting"
    """Its process is coming up; ``progress`` and ``reason`` say how far it is."""
    READY = "ready"
    PAUSED = "paused"
    """Ready, and held between two steps."""
    CRASHED = "crashed"
    """Its process died. Every request in flight has been told."""
    RESTARTING = "restarting"
    """A new process is on its way, after a back-off."""
    UNAVAILABLE = "unavailable"
    """It cannot run here; ``reason`` says why."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """Base of everything an engine emits."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits an engine was started with. ``None``: the engine has no such limit."""

    max_model_len: Count | None = None
    batch_size: Count | None = None
    block_size: Count | None = None
    num_blocks: Count | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    null_block: Count | None = None
    """A block that the engine keeps for itself and never gives out, among its ``num_blocks``."""
    kernels: str | None = None
    """What computes its model, where there is a choice."""


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that costs are computed from."""

    num_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    num_kv_heads: Count
    head_dim: Count
    vocab_size: Count
    num_parameters: Count | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that the KV cache holds for a token: K and V, of each KV head of each layer."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


class TraceHeader(Record, frozen=True, tag="header"):
    """First line of a trace and first record of a feed: what ran, where, with which versions."""

    schema_version: int
    backend: str
    model: str
    device: str
    dtype: str
    engine: EngineConfig
    shape: ModelShape | None
    versions: dict[str, str]
    hardware: str
    started_at: str
    """Wall clock at start, ISO 8601 in UTC."""
    start_time: Seconds
    """Monotonic clock at the same moment."""
    measured: dict[str, Exposure]
    """Panel name (``batch``, ``kv``, ``queues``, ``latency``) → how that panel knows."""
    notes: dict[str, str] = {}
    """Panel name → one sentence: what is not exposed and why, or the formula of what is derived.
    ``chat`` is there where the model has no chat template."""


class RequestArrived(Record, frozen=True, tag="arrived"):
    """A request was accepted. No text, no token ids, no name: a seat."""

    request_id: str
    seat: Count
    """0 is shown as A, 1 as B …; it also picks the colour. One seat per request in flight."""
    num_prompt_tokens: Count | None
    """``None`` where only a remote server can count them: it tells at the end."""
    max_tokens: Count
    source: Source
    stream: bool
    time: Seconds


class ScheduledRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request's part of a step, in the order of the batch's rows."""

    request_id: str
    phase: Phase
    num_scheduled_tokens: Count
    """Tokens really computed for this request in this step (padding not counted)."""
    num_computed_tokens: Count
    """Tokens whose K and V were there before the step; always 0 without a cache."""
    num_cached_tokens: Count | None = None
    """The part of ``num_computed_tokens`` that prefix caching found."""


class KVDelta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step changed in the KV cache: O(batch), not O(pool).

    Engines with blocks fill the block fields; engines that reserve one contiguous run per
    request fill ``reserved_slots``; both fill ``filled_slots``.
    """

    num_free: Count | None = None
    """Free blocks after the step, cached-but-free ones included."""
    taken: dict[str, list[int]] = {}
    """Request → block ids appended to its block table, in logical order."""
    given_back: dict[str, list[int]] = {}
    """Request → block ids removed from its block table (finished, aborted or preempted)."""
    ref_counts: dict[int, int] = {}
    """Block id → its reference count after the step, for blocks where it changed to or from > 1."""
    cached: list[int] = []
    """Blocks that became findable by prefix caching (full and hashed)."""
    evicted: list[int] = []
    """Cached blocks whose content was dropped to be used anew."""
    filled_slots: dict[str, int] = {}
    """Request → slots of its block table or reservation that hold K and V after the step."""
    reserved_slots: dict[str, int] = {}
    """Request → slots reserved for it, whether used or not."""


class StepRecord(Record, frozen=True, tag="step"):
    """One forward pass of the engine."""

    step_id: Count
    start_time: Seconds
    duration: Seconds
    rows: list[ScheduledRow]
    input_shape: list[int] | None
    """Shape of the ids the model saw, shown as ``torch.Size([2, 25])``."""
    num_padding_tokens: Count | None
    attention_pairs: Count | None
    """Query × key pairs of the rows, padding not counted: ΣL² without a cache, the sum of
    num_scheduled × (num_computed + num_scheduled) with one. Causal masking is not subtracted."""
    pool: str | None = None
    """Which of an engine's batches stepped, where it has several: ``streaming`` or ``whole``."""
    waiting_ids: list[str] = []
    """Still waiting while the step ran, in order: in none of its rows."""
    admitted_ids: list[str] = []
    """First scheduled in this step."""
    preempted_ids: list[str] = []
    finished_ids: list[str] = []
    """Left the batch at the end of this step."""
    kv: KVDelta | None = None


class KVChanged(Record, frozen=True, tag="kv"):
    """The KV cache changed between two steps: a request that held blocks was aborted."""

    time: Seconds
    kv: KVDelta


class TokenEmitted(Record, frozen=True, tag="token"):
    """A token left the engine. Its text goes only to whoever asked."""

    request_id: str
    index: Count
    step_id: Count | None
    time: Seconds


class QueueSample(Record, frozen=True, tag="queues"):
    """Depths of the queues on a token's way, at one moment."""

    time: Seconds
    queues: dict[str, Count]
    """Queue name → depth, named as in the code (``incoming_queue``, ``result_queue``, …)."""
    streams: dict[str, Count]
    """Request → tokens waiting in that request's own stream queue."""
    num_misdelivered: Count | None = None
    """Results that reached a call other than their own, since start (``result_routing``)."""


class EngineGauges(Record, frozen=True, tag="gauges"):
    """What an engine tells of itself in sums only, where its steps cannot be seen.

    Counters run since the engine's own start. ``server``: which of several servers, from 0.
    """

    time: Seconds
    source: str
    """Where the figures were read, for the panel: ``/metrics``, ``vLLM's stat logger``."""
    server: Count | None = None
    num_running: Count | None = None
    num_waiting: Count | None = None
    kv_cache_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Share of the KV cache's blocks that requests hold."""
    prefix_cache_queries: Count | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_cache_hits: Count | None = None
    """The part of them found there."""
    num_preemptions: Count | None = None


class RequestFinished(Record, frozen=True, tag="finished"):
    """A request ended, with the reason."""

    request_id: str
    reason: FinishReason
    time: Seconds
    message: str | None = None
    num_prompt_tokens: Count | None = None
    """The server's own count, where it alone can count (``usage`` of an OpenAI-compatible one)."""
    num_output_tokens: Count | None = None
    """Likewise; where given it is right even if ``TokenEmitted`` counted chunks."""


class EngineState(Record, frozen=True, tag="state"):
    """The engine's state changed."""

    backend: str
    state: State
    time: Seconds
    reason: str | None = None
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    step_delay: Seconds = 0
    """Slow motion: seconds waited before every step."""


class RequestSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request as a snapshot knows it."""

    arrived: RequestArrived
    first_scheduled_time: Seconds | None = None
    first_token_time: Seconds | None = None
    last_token_time: Seconds | None = None
    num_output_tokens: Count = 0
    sum_tokens_computed: Count = 0
    sum_attention_pairs: Count = 0
    num_preemptions: Count = 0
    running: bool = False
    blocks: list[int] = []
    filled_slots: Count | None = None
    reserved_slots: Count | None = None


class Snapshot(Record, frozen=True, tag="snapshot"):
    """All that a viewer needs to go on from here, when it cannot have every record.

    Sent at the head of a feed whose oldest records have been dropped, and to a viewer that
    could not keep up.
    """

    version: Count
    """Records that came before this one: a viewer that counts on from here knows the ``since``
    to come back with."""
    time: Seconds
    next_step_id: Count
    requests: list[RequestSnapshot]
    """Requests in flight, in order of arrival."""
    num_free_blocks: Count | None = None
    cached_blocks: list[int] = []
    ref_counts: dict[int, int] = {}
    gauges: list[EngineGauges] = []
    """The last of each server."""
    totals: dict[str, Count] = {}
    """Cumulative counters since start: ``steps``, ``tokens_computed``, ``attention_pairs``,
    ``padding_tokens``, ``output_tokens``, ``requests_finished``, ``preemptions``."""


AnyRecord = (
    TraceHeader
    | RequestArrived
    | StepRecord
    | KVChanged
    | TokenEmitted
    | QueueSample
    | EngineGauges
    | RequestFinished
    | EngineState
    | Snapshot
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def time_of(record: AnyRecord) -> float:
    """The moment a record tells of, on the monotonic clock."""
    if isinstance(record, StepRecord):
        return record.start_time + record.duration
    if isinstance(record, TraceHeader):
        return record.start_time
    return record.time


def encode_record(record: Record) -> bytes:
    """One JSON object, without a line break."""
    return _encoder.encode(record)


def decode_record(line: bytes | str) -> AnyRecord:
    """Parse and validate one JSON object.

    Raises ``msgspec.ValidationError`` naming the field, or ``msgspec.DecodeError`` for what is
    not JSON.
    """
    return _decoder.decode(line)
