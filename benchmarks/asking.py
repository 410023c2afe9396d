"""One request of a benchmark, and what came of it."""

from __future__ import annotations

import uuid
from typing import Any

from backends.base import Backend, GenerationRequest, SamplingParams
from backends.records import Source


async def num_tokens_of(engine: Backend, max_tokens: int, **prompt: Any) -> int:
    """Tokens that one greedy request got, end-of-sequence ignored; ``prompt``: fields of the request."""
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    request = GenerationRequest(
        request_id=uuid.uuid4().hex, sampling=sampling, source=Source.WORKLOAD, **prompt
    )
    return len([chunk async for chunk in engine.generate(request) if chunk.finish_reason is None])
