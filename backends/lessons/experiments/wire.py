"""What a stream looks like on the wire."""

from __future__ import annotations

import json

from backends.lessons.experiments.batching import ROOM
from backends.lessons.ground import Ground
from backends.lessons.outcome import Outcome, Picture, Unit, derived, measured
from backends.records import TokenEmitted

SSE_PROMPT = "Once upon a time"
SSE_TOKENS = 12
FRAME_END = b"\n\n"


async def server_sent_events(ground: Ground) -> Outcome:
    """The bytes that the route ``/generate_stream`` sends for one short answer."""
    async with ground.engine("naive", batch_size=1, **ROOM) as engine:
        body = {"prompt": SSE_PROMPT, "max_tokens": SSE_TOKENS, "temperature": 0.0}
        version = engine.recorder.version
        parts = await ground.post(engine, "/generate_stream", body)
        records = [entry.record for entry in engine.recorder.since(version)]
    sent = b"".join(parts)
    times = [record.time for record in records if isinstance(record, TokenEmitted)]
    frames = [frame + FRAME_END for frame in sent.split(FRAME_END) if frame.startswith(b"data: ")]
    texts = [json.loads(frame.removeprefix(b"data: "))["token"] for frame in frames]
    sizes = [len(text.encode()) for text in texts]
    return Outcome(
        measured=[
            derived("ratio", len(sent) / sum(sizes), Unit.TIMES),
            measured("frames", len(frames), Unit.FRAMES),
            measured("sent", len(sent), Unit.BYTES),
            measured("text", sum(sizes), Unit.BYTES),
            measured("parts", len(parts), Unit.COUNT),
            derived("first_to_last", times[-1] - times[0], Unit.SECONDS),
        ],
        picture=Picture(
            series=("text", "around"),
            bars=[[float(size), float(len(frame) - size)] for size, frame in zip(sizes, frames, strict=True)],
            unit=Unit.BYTES,
            stacked=True,
        ),
    )
