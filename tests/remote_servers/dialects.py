"""Dialects of OpenAI's API, each as the named source writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.remote_servers.base import RemoteServer, choice, frame


class Vllm(RemoteServer):
    """vllm-project/vllm 0.32.0: ``vllm/entrypoints/openai/{chat_completion,completion}/serving.py``,
    ``serve/engine/protocol.py`` (``ErrorResponse``, ``ModelCard``), ``v1/metrics/loggers.py``.

    A chat begins with a chunk that has a role, no text and 0 tokens. ``continuous_usage_stats`` puts the
    count of one text on each of its chunks. A request without a key gets ``{"error": "Unauthorized"}``.
    """

    num_running = 0
    num_texts = 1

    def models(self) -> list[dict[str, Any]]:
        card = {
            "id": self.model,
            "object": "model",
            "owned_by": "vllm",
            "root": "/models/tiny",
            "parent": None,
        }
        return [card | {"max_model_len": 256, "permission": [{"id": "modelperm-1", "allow_sampling": True}]}]

    def pages(self) -> dict[str, Response]:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        metrics = f"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{labels} {float(self.num_running)}
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{labels} 2.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{labels} 0.25
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{labels} 640.0
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{labels} 96.0
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{labels} 3.0
"""
        return {
            "/version": JSONResponse({"version": "0.32.0"}),
            "/metrics": PlainTextResponse(metrics, media_type="text/plain; version=1.0.0; charset=utf-8"),
        }

    def unauthorized(self) -> Response:
        return JSONResponse({"error": "Unauthorized"}, 401)

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        asked = body["max_tokens"]
        if asked <= 256:
            return None
        error = {
            "message": f"max_tokens={asked} cannot be greater than max_model_len=256. Please request fewer "
            f"output tokens. (parameter=max_tokens, value={asked})",
            "type": "BadRequestError",
            "param": "max_tokens",
            "code": 400,
        }
        return JSONResponse({"error": error}, 400)

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        options = body.get("stream_options") or {}
        counts = options.get("include_usage") and options.get("continuous_usage_stats")
        texts = range(body.get("n", 1))

        def live(num_tokens: int) -> dict[str, Any]:
            return {"usage": self.usage(num_tokens)} if counts else {}

        head = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model}
        if is_chat:
            for index in texts:
                first = choice(None, is_chat=True, index=index, delta={"role": "assistant", "content": ""})
                yield frame(head | {"choices": [first]} | live(0))
        total = 0
        async for text, num_tokens, reason in self.paced(body):
            total = num_tokens
            for index in texts:
                said = choice(text, is_chat=is_chat, reason=reason, index=index, token_ids=None)
                if "logprobs" in body:
                    said["logprobs"] = _logprobs(text, is_chat=is_chat)
                yield frame(head | {"choices": [said]} | live(num_tokens))
        if options.get("include_usage"):
            yield frame(head | {"choices": [], "usage": self.usage(total * len(texts))})


def _logprobs(text: str, *, is_chat: bool) -> dict[str, Any]:
    """Both shapes; the second most likely token is always ``" x"``."""
    if not is_chat:
        tops = [{text: -0.5, " x": -1.5}]
        return {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": tops, "text_offset": [0]}
    tops = [{"token": name, "logprob": value, "bytes": None} for name, value in ((text, -0.5), (" x", -1.5))]
    return {"content": [{"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": tops}]}


class SGLang(RemoteServer):
    """sgl-project/sglang: ``python/sglang/srt/entrypoints/openai/serving_{chat,completions,base}.py``,
    ``protocol.py``, ``python/sglang/srt/metrics/collector.py``.

    ``usage`` is there and null on a chunk that has none. An error has no ``error`` around it, except in
    a stream. A failure is a chunk with an error and then ``[DONE]``.
    """

    error_after: int | None = None

    def models(self) -> list[dict[str, Any]]:
        return [
            {
                "id": self.model,
                "object": "model",
                "owned_by": "sglang",
                "root": self.model,
                "max_model_len": 512,
            }
        ]

    def pages(self) -> dict[str, Response]:
        labels = f'{{engine_type="unified",model_name="{self.model}",pp_rank="0",tp_rank="0"}}'
        metrics = f"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{labels} 8.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{labels} 4.0
# TYPE sglang:token_usage gauge
sglang:token_usage{labels} 0.52
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{labels} 1000.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{labels} 280.0
"""
        return {
            "/get_server_info": JSONResponse({"version": "0.5.4", "api_key": "not for us"}),
            "/metrics": PlainTextResponse(metrics),
        }

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        if body["max_tokens"] < 400:
            return None
        message = "Requested token count exceeds the model's maximum context length of 512 tokens."
        error = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
        return JSONResponse(error, 400)

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        options = body.get("stream_options") or {}
        head = {"id": "1", "object": "text_completion", "created": 1, "model": self.model, "usage": None}
        if is_chat:
            first = choice(None, is_chat=True, delta={"role": "assistant", "content": ""}, matched_stop=None)
            yield frame(head | {"choices": [first]})
        total = 0
        async for text, num_tokens, reason in self.paced(body):
            if self.error_after is not None and total >= self.error_after:
                error = {
                    "object": "error",
                    "message": "The scheduler ran out of memory",
                    "type": "InternalServerError",
                }
                yield frame({"error": error | {"param": None, "code": 500}})
                return
            said = choice(text, is_chat=is_chat, reason=reason, matched_stop=2 if reason == "stop" else None)
            live = self.usage(num_tokens) if options.get("continuous_usage_stats") else None
            yield frame(head | {"choices": [said], "usage": live})
            total = num_tokens
        if options.get("include_usage"):
            yield frame(head | {"choices": [], "usage": self.usage(total)})


class TensorRtLlm(RemoteServer):
    """NVIDIA/TensorRT-LLM: ``tensorrt_llm/serve/{openai_server,postprocess_handlers,openai_protocol}.py``.

    The first event of a chat ends in a space before its line end. ``/metrics`` is a JSON list of
    statistics of iterations, not Prometheus text. Chunks leave out what is null.
    """

    def models(self) -> list[dict[str, Any]]:
        return [{"id": self.model, "object": "model", "created": 1, "owned_by": "tensorrt_llm"}]

    def pages(self) -> dict[str, Response]:
        return {
            "/version": JSONResponse({"version": "1.2.0"}),
            "/metrics": JSONResponse([{"iter": 1, "kvCacheStats": {"usedNumBlocks": 3}}]),
        }

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        if body["max_tokens"] < 400:
            return None
        error = {
            "object": "error",
            "message": "max_tokens is too large",
            "type": "BadRequestError",
            "code": 400,
        }
        return JSONResponse(error, 400)

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        options = body.get("stream_options") or {}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model}
        if is_chat:
            opening = frame(head | {"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
            yield opening.replace("\n\n", " \n\n")
        total = 0
        async for text, num_tokens, reason in self.paced(body):
            said = {"delta": {"content": text, "reasoning_content": ""}} if is_chat else {"text": text}
            end = {} if reason is None else {"finish_reason": reason}
            live = {"usage": self.usage(num_tokens)} if options.get("continuous_usage_stats") else {}
            yield frame(head | {"choices": [{"index": 0} | said | end]} | live)
            total = num_tokens
        if options.get("include_usage"):
            yield frame(head | {"choices": [], "usage": self.usage(total)})


class Ollama(RemoteServer):
    """ollama/ollama: ``openai/openai.go`` (``ToChunk``, ``ToListCompletion``, ``NewError``),
    ``middleware/openai.go``.

    Every chunk repeats the role; the end of the model's own stream is one chunk without text. Fields
    that it does not know (``top_k``, ``n``) are dropped without a word, ``continuous_usage_stats`` too.
    """

    model: ClassVar = "smollm2:135m"

    def models(self) -> list[dict[str, Any]]:
        return [{"id": self.model, "object": "model", "created": 1, "owned_by": "library"}]

    def pages(self) -> dict[str, Response]:
        return {"/api/version": JSONResponse({"version": "0.12.6"})}

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        if body["model"] == self.model:
            return None
        error = {"message": f"model '{body['model']}' not found", "type": "not_found_error"}
        return JSONResponse({"error": error | {"param": None, "code": None}}, 404)

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": self.model}
        head["system_fingerprint"] = "fp_ollama"
        total, last_reason = 0, None

        def said(text: str, reason: str | None) -> dict[str, Any]:
            delta = {"delta": {"role": "assistant", "content": text}} if is_chat else {"text": text}
            return {"index": 0, **delta, "finish_reason": reason}

        async for text, num_tokens, reason in self.paced(body):
            yield frame(head | {"choices": [said(text, None)]})
            total, last_reason = num_tokens, reason
        yield frame(head | {"choices": [said("", last_reason)]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield frame(head | {"choices": [], "usage": self.usage(total)})


class LlamaCpp(RemoteServer):
    """ggml-org/llama.cpp: ``tools/server/server-task.cpp`` (``to_json_oaicompat_chat_stream``),
    ``server-common.cpp`` (``format_error_response``), ``server-context.cpp`` (``/metrics``, ``/props``).

    The first chunk of a chat has ``"content": null``; the last has an empty delta; usage comes with
    timings. A comment now and then keeps the connection open. ``/metrics`` needs a flag, 501 without.
    """

    has_metrics = True
    is_loading = False

    def models(self) -> list[dict[str, Any]]:
        meta = {"vocab_type": 2, "n_vocab": 49152, "n_ctx_train": 8192, "n_params": 134515008}
        return [{"id": self.model, "object": "model", "created": 1, "owned_by": "llamacpp", "meta": meta}]

    def pages(self) -> dict[str, Response]:
        metrics = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 6886
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 46
"""
        unsupported = _llama_error(
            501, "This server does not support metrics endpoint.", "not_supported_error"
        )
        return {
            "/props": JSONResponse({"build_info": "b7187-7fb18910", "total_slots": 4}),
            "/metrics": PlainTextResponse(metrics, media_type="text/plain; version=0.0.4")
            if self.has_metrics
            else unsupported,
        }

    def refuse(self, body: dict[str, Any], *, is_chat: bool) -> Response | None:
        if self.is_loading:
            return _llama_error(503, "Loading model", "unavailable_error")
        if body["max_tokens"] < 400:
            return None
        words = "request (4170 tokens) exceeds the available context size (4096 tokens), try increasing it"
        return _llama_error(400, words, "exceed_context_size_error", n_prompt_tokens=4170, n_ctx=4096)

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        head = {"id": "chatcmpl-1", "created": 1, "model": self.model, "object": "chat.completion.chunk"}
        if is_chat:
            opening = {"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}
            yield frame(head | {"choices": [opening]})
        total, last_reason = 0, None
        async for text, num_tokens, reason in self.paced(body):
            yield ":\n\n"
            yield frame(head | {"choices": [choice(text, is_chat=is_chat)]})
            total, last_reason = num_tokens, reason
        ending = {"delta": {}} if is_chat else {"text": ""}
        yield frame(head | {"choices": [{"index": 0, "finish_reason": last_reason, **ending}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield frame(head | {"choices": [], "usage": self.usage(total), "timings": {"predicted_n": total}})


def _llama_error(code: int, message: str, kind: str, **more: Any) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "type": kind, **more}}, code)


class LlamaCppPython(RemoteServer):
    """abetlen/llama-cpp-python: ``llama_cpp/server/app.py``, ``llama_cpp/llama.py``.

    A stream has no usage, whatever was asked for. With its default, ``interrupt_requests``, any other
    request, a list of models too, ends the answer that is under way. Seen with version 0.3.36.
    """

    def models(self) -> list[dict[str, Any]]:
        return [{"id": self.model, "object": "model", "owned_by": "me", "permissions": []}]

    async def answer(self, body: dict[str, Any], *, is_chat: bool) -> AsyncIterator[str]:
        head = {"id": "chatcmpl-1", "model": self.model, "created": 1, "object": "chat.completion.chunk"}
        if is_chat:
            yield frame(head | {"choices": [choice(None, is_chat=True, delta={"role": "assistant"})]})
        last_reason = None
        async for text, _, reason in self.paced(body):
            yield frame(head | {"choices": [choice(text, is_chat=is_chat)]})
            last_reason = reason
        ending = {"delta": {}} if is_chat else {"text": ""}
        yield frame(head | {"choices": [choice(None, is_chat=is_chat, reason=last_reason, **ending)]})


class LlmdGateway(Vllm):
    """llm-d/llm-d: vLLM behind Envoy, whose scheduler is the endpoint picker of
    kubernetes-sigs/gateway-api-inference-extension: ``pkg/epp/handlers/server.go`` (``BuildErrResponse``).

    The scheduler refuses with a status and no body at all, Envoy itself with a line of text. What is not
    routed, ``/metrics`` and ``/version``, is a 404.
    """

    def pages(self) -> dict[str, Response]:
        return {}

    @staticmethod
    def no_capacity() -> Response:
        return Response(status_code=429)

    @staticmethod
    def no_pod() -> Response:
        return PlainTextResponse("no healthy upstream", 503)
