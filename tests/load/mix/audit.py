"""What must be true when everybody has gone: nothing is left, and every count adds up."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from backends.base import Backend, ControlAction
from backends.books import books_of
from backends.errors import EngineUnavailable
from backends.hosted import HostedEngine
from backends.naive.engine import NaiveEngine
from backends.records import AnyRecord, FinishReason, RequestArrived, RequestFinished, Source, TokenEmitted
from backends.remote.engine import RemoteBackend
from tests.load.mix.clients import DEADLINE, End, Notes, Sent
from tests.load.mix.site import NUM_BLOCKS, REMOTE_WORDS, VLLM_NUM_BLOCKS, Site

WHOLE_POOLS = {"paged": NUM_BLOCKS, "vllm": VLLM_NUM_BLOCKS - 1}
"""Free blocks when nobody holds one; vLLM's null block never is."""
RAN_OUT = (FinishReason.STOP, FinishReason.LENGTH)


class Records:
    """Everything an engine records while the mix runs: its own log is bounded."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._all: list[AnyRecord] = []
        self._version = engine.recorder.version
        self._keeping = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        async for entries in self._engine.recorder.follow(self._version):
            self._all += [entry.record for entry in entries]
            self._version += len(entries)

    async def close(self) -> list[AnyRecord]:
        self._keeping.cancel()
        await asyncio.wait({self._keeping})
        if not self._keeping.cancelled():
            self._keeping.result()  # raises: it fell out of the log
        return [*self._all, *(entry.record for entry in self._engine.recorder.since(self._version))]


async def settle(site: Site, notes: Notes) -> None:
    """Every engine runs freely and serves once more, so that its figures are of now."""
    async with site.client() as client:
        for name, engine in site.engines.items():
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        await engine.start()
                        break
                    except EngineUnavailable:  # given up after several kills
                        await site.control(client, name, ControlAction.RESTART)
            if ControlAction.RESUME in engine.info.controls:
                await site.control(client, name, ControlAction.RESUME)
            sent = notes.new(name, " a b")
            body = {"prompt": sent.prompt, "max_tokens": 2, "temperature": 0}
            answer = await client.post(f"/generate?backend={name}", json=body, timeout=DEADLINE)
            assert answer.status_code == 200, answer.text
            sent.request_id, sent.text = answer.json()["sequence_id"], answer.json()["generated_text"]
            sent.num_tokens, sent.end = len(sent.text.split()), End.COMPLETE


def problems(site: Site, notes: Notes, records: dict[str, list[AnyRecord]], metrics: str) -> Iterator[str]:
    """Sentences, one for each thing that is not as it must be."""
    values = _values(metrics)
    yield from _crossed_texts(notes)
    for name, engine in site.engines.items():
        sent = [each for each in notes.sent if each.backend == name]
        for problem in (
            *_left_over(engine),
            *_wrong_records(records[name], sent),
            *_wrong_sums(name, records[name], sent, notes, values),
        ):
            yield f"{name}: {problem}"
    if site.visitors._in_flight:
        yield f"visitors still hold {dict(site.visitors._in_flight)}"
    if site.remote_server.num_open:
        yield f"the remote server still writes {site.remote_server.num_open} answers"


def _left_over(engine: Backend) -> Iterator[str]:
    snapshot = engine.recorder.head().snapshot
    held: dict[str, object] = {"requests in the records": snapshot.requests}
    if isinstance(engine, HostedEngine):
        held |= {"streams": engine._streams, "seats": engine._seats._seat_of}
    if isinstance(engine, NaiveEngine):
        pools, calls = engine.workload_manager, engine.executor
        held |= {
            "incoming": [*pools.incoming_queue, *pools.incoming_streaming_queue],
            "active": [*pools.active_sequences, *pools.active_streaming_sequences],
            "pools in a step": pools._stepping,
            "calls": calls._queue_of_call,
            "dead loops": [loop.name for loop in engine._loops if not loop.is_alive()],
        }
    if isinstance(engine, RemoteBackend):
        held |= {"requests": engine._in_flight._running, "seats": engine._in_flight._seats._seat_of}
    yield from (f"{what} left: {left}" for what, left in held.items() if left)
    whole = WHOLE_POOLS.get(engine.info.name)
    if whole is not None and (snapshot.num_free_blocks, snapshot.ref_counts) != (whole, {}):
        yield f"{snapshot.num_free_blocks} of {whole} blocks free, shared: {snapshot.ref_counts}"


def _wrong_records(records: list[AnyRecord], sent: list[Sent]) -> Iterator[str]:
    """Each request arrives once, ends once, sits alone, and its client has every token of it in order."""
    seats: dict[str, int] = {}
    finished: dict[str, RequestFinished] = {}
    tokens: defaultdict[str, list[int]] = defaultdict(list)
    for record in records:
        match record:
            case RequestArrived(request_id=name, seat=seat):
                if name in seats or name in finished or seat in seats.values():
                    yield f"{name} arrived twice, or its seat {seat} was taken"
                seats[name] = seat
            case TokenEmitted(request_id=name, index=index):
                tokens[name].append(index)
            case RequestFinished(request_id=name):
                if seats.pop(name, None) is None:
                    yield f"{name} finished twice, or never arrived"
                finished[name] = record
            case _:
                pass
    yield from (f"{name} has tokens {got}" for name, got in tokens.items() if got != list(range(len(got))))
    for each in sent:
        if each.request_id in finished:
            yield from _wrong_end(each, finished[each.request_id], len(tokens[each.request_id]))
        elif each.end in (End.COMPLETE, End.LEFT, End.FAILED) and each.request_id is not None:
            yield f"{each} is in no record"
    books = books_of(records)
    if not books.balances:
        yield f"the books do not balance: {books.total}"


def _wrong_end(sent: Sent, finished: RequestFinished, num_emitted: int) -> Iterator[str]:
    if sent.end is End.COMPLETE and finished.reason not in RAN_OUT:
        yield f"{sent} has {finished}"
    if sent.end is End.COMPLETE and sent.num_tokens != num_emitted:
        yield f"{sent} has {num_emitted} tokens in the records"
    if sent.num_tokens > num_emitted:
        yield f"{sent} got more than the {num_emitted} tokens of the records"


def _wrong_sums(
    name: str, records: list[AnyRecord], sent: list[Sent], notes: Notes, values: dict[tuple[str, ...], float]
) -> Iterator[str]:
    """``/metrics`` beside the records, and both beside what the clients counted."""
    arrived = Counter(record.source.value for record in records if isinstance(record, RequestArrived))
    finished = Counter(record.reason.value for record in records if isinstance(record, RequestFinished))
    emitted = sum(isinstance(record, TokenEmitted) for record in records)
    told = {
        "arrived": {
            source: values.get(("servescope_requests_arrived_total", name, source), 0) for source in arrived
        },
        "finished": {
            reason: values.get(("servescope_requests_finished_total", name, reason), 0) for reason in finished
        },
        "tokens": values.get(("servescope_output_tokens_total", name), 0),
    }
    if told != {"arrived": dict(arrived), "finished": dict(finished), "tokens": emitted}:
        yield f"/metrics tells {told}; the records have {arrived}, {finished}, {emitted} tokens"
    if sum(arrived.values()) != sum(finished.values()):
        yield f"{arrived} arrived, {finished} finished"
    surely = sum(each.end in (End.COMPLETE, End.FAILED, End.LEFT) for each in sent)
    perhaps = sum(_may_have_arrived(each) for each in sent)
    asked = sum(arrived.values()) - arrived[Source.WORKLOAD.value]
    if not surely <= asked <= surely + perhaps:
        yield f"{asked} arrived of {surely} that must have, and {perhaps} that may have"
    surely, most = _sent_by_races(name, notes)
    if not surely <= arrived[Source.WORKLOAD.value] <= most:
        yield f"{arrived[Source.WORKLOAD.value]} of races arrived, not {surely} to {most}"
    for gauge, label in (("requests", "running"), ("requests", "waiting"), ("viewers", None)):
        key = (f"servescope_{gauge}", name) if label is None else (f"servescope_{gauge}", name, label)
        if values.get(key, 0):
            yield f"{key} is {values[key]}"


def _may_have_arrived(sent: Sent) -> bool:
    """A remote server can be found to be away after the request was taken in."""
    return sent.end is End.LEFT_EARLY or (sent.end is End.REFUSED and sent.backend == "remote")


def _sent_by_races(name: str, notes: Notes) -> tuple[int, int]:
    """The least and the most requests that workloads sent to an engine."""
    entries = [
        (race["workload"]["students"], entry["result"])
        for race in notes.races
        for entry in race["entries"]
        if entry["backend"] == name
    ]
    least = sum(result["num_complete"] for _, result in entries if result is not None)
    return least, sum(students for students, _ in entries)


def _crossed_texts(notes: Notes) -> Iterator[str]:
    """Greedy: whoever asked the same, of whichever engine, has the same text, as far as each goes."""
    longest: defaultdict[str, str] = defaultdict(str)
    for sent in notes.sent:
        if sent.backend == "remote":
            if not "".join(REMOTE_WORDS).startswith(sent.text):
                yield f"{sent} has the text of somebody else"
            continue
        longer, shorter = sorted((sent.text, longest[sent.prompt]), key=len, reverse=True)
        if not longer.startswith(shorter):
            yield f"{sent} differs from {longest[sent.prompt]!r}"
        longest[sent.prompt] = longer


def _values(metrics: str) -> dict[tuple[str, ...], float]:
    return {
        (
            sample.name,
            sample.labels["backend"],
            *(v for k, v in sample.labels.items() if k != "backend"),
        ): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if "backend" in sample.labels
    }
