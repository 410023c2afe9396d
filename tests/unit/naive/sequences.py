"""Sequences for the tests of the naive server's parts."""

from __future__ import annotations

import asyncio

from backends.base import GenerationRequest, SamplingParams
from backends.naive.workload_manager import Sequence
from backends.records import Source
from backends.streams import RequestStream

_NOBODYS_LOOP = asyncio.new_event_loop()
_NOBODYS_LOOP.close()


def sequence(name: str, prompt: str = "a b c d", **sampling: float) -> Sequence:
    """A sequence whose stream nobody reads."""
    request = GenerationRequest(
        request_id=name, prompt=prompt, sampling=SamplingParams(**sampling), source=Source.API
    )
    return Sequence(RequestStream(request, _NOBODYS_LOOP), text=prompt)


def names(sequences: list[Sequence]) -> str:
    """``[A, B]`` → ``"A B"``: a batch as a picture."""
    return " ".join(sequence.sequence_id for sequence in sequences)
