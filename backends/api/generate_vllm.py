"""Several prompts in one call to vLLM, as the article ends: twenty lines in place of a server.

    POST /generate_vllm               {"prompts": [str, …], "max_tokens"?: 16}
                                      → {"generated_texts": [str, …]}, when the last is done
    POST /generate_vllm?mode=async    the same, beside other calls instead of after them

In blocking mode, the default, calls queue up (``backends/vllm_async/sync_mode.py``).
"""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict

from backends import admission
from backends.api.body import encodable, json_route
from backends.api.disconnect import unless_gone
from backends.api.share import callers_share
from backends.base import Backend, GenerationRequest, SamplingParams
from backends.records import Source
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Share, Visitors

TEMPERATURE, TOP_P, MAX_TOKENS = 0.7, 0.95, 16
"""The article's ``SamplingParams(temperature=0.7, top_p=0.95)``, and vLLM's own ``max_tokens``."""


class PromptsBody(BaseModel):
    """Strict, like the other teaching routes."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    prompts: list[Annotated[str, AfterValidator(encodable)]]
    max_tokens: int = MAX_TOKENS
    temperature: float = TEMPERATURE
    top_p: float = TOP_P


class GeneratedTexts(BaseModel):
    generated_texts: list[str]


def create_router(registry: Registry, settings: Settings, visitors: Visitors) -> APIRouter:
    router = APIRouter(route_class=json_route(settings.max_model_len), tags=["teaching"])
    callers = callers_share(visitors, settings)

    @router.post("/generate_vllm", response_model=GeneratedTexts)
    async def generate_vllm(
        request: Request,
        body: PromptsBody,
        mode: Literal["blocking", "async"] = "blocking",
        share: Share = callers,
    ) -> Response:
        """The texts, in the order of the prompts."""
        texts: list[str] = []
        if body.prompts:
            engine = registry.get("vllm")
            admission.check_num_texts(len(body.prompts), settings.max_waiting, field="prompts")
            call = _call(body, mode)
            admission.check_fields(call, engine.info, settings)
            share.take(len(body.prompts))
            texts = await unless_gone(request, _whole_texts(engine, call))
        return JSONResponse({"generated_texts": texts})

    return router


def _call(body: PromptsBody, mode: str) -> GenerationRequest:
    first, *more = body.prompts
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt=first,
        more_prompts=tuple(more),
        sampling=SamplingParams(max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p),
        source=Source.API,
        stream=False,
        mode=mode,
    )


async def _whole_texts(engine: Backend, call: GenerationRequest) -> list[str]:
    texts = [""] * len(call.prompts)
    async with aclosing(engine.generate(call)) as chunks:
        async for chunk in chunks:
            texts[chunk.sample] += chunk.text
    return texts
