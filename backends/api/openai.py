"""The OpenAI-compatible routes: any client of that API can talk to any engine here.

    GET  /v1/models               one model per engine that is ready or can be started
    POST /v1/chat/completions     {"model": "paged", "messages": [{"role": "user", "content": "Hi"}]}
    POST /v1/completions          {"model": "paged", "prompt": "Once upon a time"}

``model`` names the engine. With ``"stream": true`` the answer comes as server-sent events, one a
token, ending in ``data: [DONE]``; an error midway is ``data: {"error": …}`` instead.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from backends import admission
from backends.api.disconnect import unless_gone
from backends.api.openai_answer import Answer
from backends.api.openai_body import ChatBody, CompletionBody, SamplingBody
from backends.api.openai_choices import (
    ChatShape,
    Choice,
    CompletionShape,
    NamesTokens,
    Reply,
    Shape,
    token_logprob,
)
from backends.api.openai_errors import openai_error, openai_route
from backends.api.openai_values import Prompt
from backends.api.share import callers_share
from backends.api.sse import EventStream, sse_frame
from backends.base import Backend, GenerationRequest, SamplingParams, TokenChunk
from backends.errors import InvalidRequest, ServescopeError, UnknownBackend
from backends.records import Source, State
from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Share, Visitors


def create_router(registry: Registry, settings: Settings, visitors: Visitors) -> APIRouter:
    router = APIRouter(route_class=openai_route(settings.max_model_len), prefix="/v1", tags=["openai"])
    callers = callers_share(visitors, settings)
    offered_since = int(time.time())

    def describe(engine: Backend) -> dict[str, Any]:
        model = settings.model if engine.info.model is None else engine.info.model
        return {
            "id": engine.info.name,
            "object": "model",
            "created": offered_since,
            "owned_by": "servescope",
            "root": model or None,
        }

    @router.get("/models")
    async def models() -> Response:
        """Engines that can never run here are left out."""
        usable = [engine for engine in registry if _is_usable(engine)]
        return JSONResponse({"object": "list", "data": [describe(engine) for engine in usable]})

    @router.get("/models/{model}")
    async def model(model: str) -> Response:
        engine = registry.get(model)
        if not _is_usable(engine):
            raise UnknownBackend(f"{engine.info.title} cannot run here: {engine.state.reason}")
        return JSONResponse(describe(engine))

    @router.post("/chat/completions")
    async def chat_completions(request: Request, body: ChatBody, share: Share = callers) -> Response:
        """The messages become a prompt by the model's chat template."""
        call = _Call(registry.get(body.model), settings, body, ChatShape())
        share.take(call.num_texts(1))
        prompt = await unless_gone(request, call.engine.render_chat(list(body.for_template())))
        return await call.respond(request, [prompt])

    @router.post("/completions")
    async def completions(request: Request, body: CompletionBody, share: Share = callers) -> Response:
        """Several prompts are several requests to the engine, at once."""
        call = _Call(registry.get(body.model), settings, body, CompletionShape())
        call.check_prompts(body.prompt)
        share.take(call.num_texts(len(body.prompt)))
        return await call.respond(request, body.prompt)

    return router


def _is_usable(engine: Backend) -> bool:
    return engine.state.state is not State.UNAVAILABLE


class _Call:
    """One HTTP request on its way to an engine and back."""

    def __init__(self, engine: Backend, settings: Settings, body: SamplingBody, shape: Shape) -> None:
        """Refuses what the engine cannot honour before anything is started."""
        self.engine = engine
        self._settings = settings
        self._body = body
        self._shape = shape
        self._n = 1 if body.n is None else body.n
        self._messages = body.for_template() if isinstance(body, ChatBody) else None
        asked = body.asked_max_tokens
        if asked is not None:
            admission.check_range(body.max_tokens_field, asked, 1, settings.max_tokens)
        sampling = body.sampling(1 if asked is None else asked)
        self._with_logprobs = sampling.logprobs is not None
        self._check("the prompt is known later", sampling)
        if sampling.logprobs and not isinstance(engine, NamesTokens):
            field = "top_logprobs" if isinstance(body, ChatBody) else "logprobs"
            raise InvalidRequest(f"{engine.info.title} cannot name the most likely tokens.", field=field)

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raises ``InvalidRequest`` for one that cannot be served, or more than could ever wait."""
        for prompt in prompts:
            self._check(prompt, self._body.sampling(1))
        admission.check_num_texts(self.num_texts(len(prompts)), self._settings.max_waiting, field="prompt")

    def num_texts(self, num_prompts: int) -> int:
        """Texts that are asked for; each is a request of its own to the engine."""
        return num_prompts * self._n

    async def respond(self, request: Request, prompts: Sequence[Prompt]) -> Response:
        """The answer, whole or as a stream. When the client goes, the engine is told."""
        counts = await unless_gone(request, self._count(prompts))
        requests = [self._prepare(prompt, count) for prompt, count in zip(prompts, counts, strict=True)]
        reply = Reply(self._shape, self._body.model, requests, counts)
        answer = Answer(self.engine, requests)
        try:
            if not self._body.stream:
                await unless_gone(request, self._collect(answer, reply))
                await answer.close()
                return JSONResponse(reply.whole(with_logprobs=self._with_logprobs))
            await unless_gone(request, answer.settle())
            answer.raise_refusal()
        except BaseException:  # refused, or the client has gone, or the server is going
            await answer.close()
            raise
        return EventStream(self._frames(answer, reply), answer.close)

    def _check(self, prompt: Prompt, sampling: SamplingParams) -> None:
        admission.check_fields(self._request(prompt, sampling), self.engine.info, self._settings)

    async def _count(self, prompts: Sequence[Prompt]) -> list[int | None]:
        return [
            await self.engine.count_prompt_tokens(prompt) if isinstance(prompt, str) else len(prompt)
            for prompt in prompts
        ]

    def _prepare(self, prompt: Prompt, num_prompt_tokens: int | None) -> GenerationRequest:
        """``max_tokens`` is what is left, where none was asked for; a prompt that leaves nothing is
        refused by the engine, in its own words."""
        max_tokens = self._body.asked_max_tokens
        if max_tokens is None:
            left = self._settings.max_model_len - (num_prompt_tokens or 0)
            max_tokens = max(1, min(self._settings.max_tokens, left))
        return self._request(prompt, self._body.sampling(max_tokens))

    def _request(self, prompt: Prompt, sampling: SamplingParams) -> GenerationRequest:
        return GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt=prompt if isinstance(prompt, str) else "",
            prompt_ids=None if isinstance(prompt, str) else prompt,
            messages=self._messages,
            sampling=sampling,
            source=Source.API,
            stream=bool(self._body.stream),
            cache_salt=self._body.cache_salt,
        )

    async def _collect(self, answer: Answer, reply: Reply) -> None:
        async for index, chunk in answer.chunks():
            self._add(reply, index, chunk)

    def _add(self, reply: Reply, index: int, chunk: TokenChunk) -> Choice:
        choice = reply.choices[index * self._n + chunk.sample]
        choice.add(chunk, token_logprob(chunk, self.engine) if self._with_logprobs else None)
        if chunk.num_prompt_tokens is not None:
            reply.num_prompt_tokens[index] = chunk.num_prompt_tokens
        return choice

    async def _frames(self, answer: Answer, reply: Reply) -> AsyncIterator[str]:
        kind = self._shape.chunk_object
        try:
            async for index, chunk in answer.chunks():
                choice = self._add(reply, index, chunk)
                if choice.is_about_to_end:
                    continue  # its end comes at once and goes with it, so that a token is a frame
                delta = self._shape.delta(choice, with_logprobs=self._with_logprobs)
                yield sse_frame(reply.frame(kind, [delta]) | self._usage_so_far(reply))
            if self._body.usage_told.include_usage:
                yield sse_frame(reply.frame(kind, []) | {"usage": reply.usage()})
            yield "data: [DONE]\n\n"
        except ServescopeError as error:
            yield sse_frame(openai_error(error, is_chat=isinstance(self._body, ChatBody)))

    def _usage_so_far(self, reply: Reply) -> dict[str, Any]:
        told = self._body.usage_told
        if not told.include_usage:
            return {}
        return {"usage": reply.usage() if told.continuous_usage_stats else None}
