"""Was anything lost, duplicated or crossed? Each check hands back sentences, one for each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from zlib import crc32

from backends.records import FinishReason, encode_record, time_of
from backends.snapshot import SnapshotBuilder
from tests.load.answers import Answer, Question, Route
from tests.load.log import EngineLog, Request
from tests.load.viewers import Seen

ENDS = (FinishReason.STOP, FinishReason.LENGTH)


def faults_of_answers(
    answers: Sequence[Answer], requests: Mapping[str, Request], alone: Mapping[Question, str]
) -> list[str]:
    """Every answer against the engine's record of its request, and against the text that the same question
    gets alone; and every request of the engine against the answers."""
    owners = {text: question for question, text in alone.items()}
    faults = [f for answer in answers for f in _faults_of_answer(answer, requests, alone, owners)]
    counts = Counter(answer.request_id for answer in answers if answer.request_id is not None)
    faults += [f"{request_id}: {count} clients got it" for request_id, count in counts.items() if count > 1]
    return faults + [f"{request_id}: nobody got it" for request_id in requests if request_id not in counts]


def _faults_of_answer(
    answer: Answer,
    requests: Mapping[str, Request],
    alone: Mapping[Question, str],
    owners: Mapping[str, Question],
) -> Iterator[str]:
    who = f"{answer.question.route} {answer.question.client} ({answer.request_id})"
    if answer.problem is not None:
        yield f"{who}: {answer.problem}"
        return
    request = requests.get(answer.request_id or "")
    if request is None:
        yield f"{who}: the engine has no record of it"
        return
    yield from (f"{who}: {fault}" for fault in _faults_of_request(answer, request))
    expected = alone[answer.question]
    if answer.text == expected:
        return
    owner = owners.get(answer.text)
    if owner is not None:
        yield f"{who}: got the answer to {owner.route} {owner.client}"
    else:
        yield f"{who}: {_difference(answer.text, expected)}"


def _faults_of_request(answer: Answer, request: Request) -> Iterator[str]:
    count = len(request.token_indices)
    if request.token_indices != list(range(count)):
        yield f"tokens were emitted as {request.token_indices}"
    if [ending.reason in ENDS for ending in request.endings] != [True]:
        yield f"it ended as {[ending.reason.value for ending in request.endings]}"
        return
    reason, num_frames = request.endings[0].reason, len(answer.frame_times)
    if reason is FinishReason.LENGTH and count != answer.question.max_tokens:
        yield f"{count} tokens were emitted, not {answer.question.max_tokens}"
    if answer.question.route is not Route.CHAT and not _frames_fit(num_frames, count, reason):
        yield f"{num_frames} frames came for {count} tokens"


def _frames_fit(num_frames: int, num_tokens: int, reason: FinishReason) -> bool:
    """A frame a token. The token that ends an answer by itself has no text; the reason, or text that was
    held back until then, may come in a frame of its own."""
    return num_tokens - (reason is FinishReason.STOP) <= num_frames <= num_tokens + 1


def _difference(text: str, expected: str) -> str:
    place = next((i for i, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b), None)
    if place is None:
        return f"has {len(text)} characters, not {len(expected)}: …{text[-30:]!r} and …{expected[-30:]!r}"
    return f"differs at character {place}: {text[place : place + 30]!r}, not {expected[place : place + 30]!r}"


def faults_of_viewers(viewers: Sequence[Seen], log: EngineLog, last_version: int) -> list[str]:
    """Each viewer's records against the log: none left out, none twice, none changed; where it was skipped
    forward, that it was told so by a snapshot of just that moment; and all in the same state at the end."""
    checksums = [crc32(line) for line in log.lines]
    snapshots = _snapshots(log, {segment.start for seen in viewers for segment in seen.segments})
    return [
        f"viewer {number}: {fault}"
        for number, seen in enumerate(viewers)
        for fault in _faults_of_viewer(seen, checksums, snapshots, last_version)
    ]


def _faults_of_viewer(
    seen: Seen, checksums: list[int], snapshots: dict[int, bytes], last_version: int
) -> Iterator[str]:
    end = 0
    for segment in seen.segments:
        if segment.start < end:
            yield f"the snapshot of version {segment.start} came after {end} records"
        sums = memoryview(segment.checksums).cast("I")
        expected = checksums[segment.start : segment.start + len(sums)]
        if list(sums) != expected:
            place = next(
                (i for i, pair in enumerate(zip(sums, expected, strict=False)) if pair[0] != pair[1]), 0
            )
            yield f"record {segment.start + place} is not the engine's"
        end = segment.start + len(sums)
        if segment.opening != snapshots.get(segment.start):
            yield f"the snapshot of version {segment.start} is not the engine's"
    if end < last_version:
        yield f"saw {end} of {last_version} records"


def _snapshots(log: EngineLog, versions: set[int]) -> dict[int, bytes]:
    """The log folded up to each of these versions, as the server would send it. With equal snapshots and
    equal records after them, viewers are in equal states: a state is nothing but these."""
    builder, snapshots, time = SnapshotBuilder(), {}, 0.0
    for version in range(len(log.records) + 1):
        if version in versions:
            snapshots[version] = encode_record(builder.snapshot(version, time))
        if version < len(log.records):
            builder.apply(log.records[version])
            time = time_of(log.records[version])
    return snapshots


def num_skips(viewers: Iterable[Seen]) -> int:
    """How often a viewer that could not keep up was told a new beginning."""
    return sum(len(seen.segments) - 1 for seen in viewers)
