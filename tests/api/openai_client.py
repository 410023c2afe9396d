"""OpenAI's own client of a test's server, and engines that answer as a script says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from openai import AsyncOpenAI

from backends import admission
from backends.base import GenerationRequest, SamplingParams, TokenChunk
from backends.records import FinishReason
from backends.settings import Settings
from tests.api.serving import Served, serving
from tests.fakes import FakeBackend

HELLO: Any = [{"role": "user", "content": "say it"}]
EVERY_FIELD = frozenset({"top_p", "top_k", "seed", "stop", "ignore_eos", "n", "logprobs", "prompt_ids"})


class Scripted(FakeBackend):
    """An engine that honours every field, as far as these chunks say."""

    def __init__(self, chunks: Sequence[TokenChunk], name: str = "paged") -> None:
        super().__init__(name)
        self.info = msgspec.structs.replace(self.info, supported=EVERY_FIELD)
        self.chunks = chunks
        self.requests: list[GenerationRequest] = []

    @property
    def asked(self) -> list[SamplingParams]:
        return [request.sampling for request in self.requests]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        admission.check_fields(request, self.info, self.settings)
        self.requests.append(request)
        for chunk in self.chunks:
            yield chunk


class Naming(Scripted):
    """One that also says what the tokens look like that it did not choose."""

    def token_text(self, token_id: int) -> str:
        return f"<{token_id}>"


def end(reason: FinishReason = FinishReason.STOP, *, text: str = "", sample: int = 0) -> TokenChunk:
    return TokenChunk(text=text, index=-1, sample=sample, finish_reason=reason)


@asynccontextmanager
async def asking(
    *backends: FakeBackend, settings: Settings | None = None
) -> AsyncIterator[tuple[Served, AsyncOpenAI]]:
    """A server and OpenAI's client of it."""
    async with (
        serving(*backends, settings=settings) as server,
        AsyncOpenAI(
            base_url=f"http://{server.address}/v1",
            api_key="none",
            max_retries=0,
            http_client=httpx.AsyncClient(trust_env=False, timeout=20),
        ) as client,
    ):
        yield server, client
