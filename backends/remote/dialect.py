"""What kinds of servers there are, and how each is asked.

All speak OpenAI's API. They differ in the fields that they honour beyond it, and in whether a chunk
of a stream says how many tokens there are so far. A field that a kind of server would drop without
a word is not sent to it: the request is refused by name instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from backends.base import SAMPLING_DEFAULTS, GenerationRequest


class UsageDetail(IntEnum):
    """How much a server is asked to tell of its counts; one that refuses is asked for less."""

    NONE = 0
    AT_THE_END = 1
    """``stream_options.include_usage``: OpenAI's own."""
    WITH_EVERY_CHUNK = 2
    """``continuous_usage_stats`` as well: vLLM, SGLang, TensorRT-LLM. Most others ignore it."""


@dataclass(frozen=True)
class Dialect:
    """One kind of server."""

    name: str
    owned_by: str | None
    """As it calls itself in ``/v1/models``."""
    fields: frozenset[str]
    """What it honours beyond ``max_tokens`` and ``temperature``."""
    counts_live: bool = False
    """Each chunk tells the tokens so far, per text: with ``n`` nothing else could tell them apart."""
    version: tuple[str, str] = ("/version", "version")
    """Where its version is told, and in which field."""


OPENAI = frozenset({"top_p", "seed", "stop", "logprobs", "prompt_ids"})
EXTENDED = OPENAI | {"top_k", "ignore_eos", "n"}

OTHER = Dialect("server", None, OPENAI)
DIALECTS = (
    Dialect("vllm", "vllm", EXTENDED, counts_live=True),
    Dialect("sglang", "sglang", EXTENDED, counts_live=True, version=("/get_server_info", "version")),
    Dialect("tensorrt_llm", "tensorrt_llm", EXTENDED, counts_live=True),
    Dialect("llama.cpp", "llamacpp", EXTENDED - {"n"}, version=("/props", "build_info")),
    Dialect("llama-cpp-python", "me", OPENAI - {"prompt_ids"} | {"top_k"}),
    Dialect("ollama", "library", frozenset({"top_p", "seed", "stop"}), version=("/api/version", "version")),
)


def dialect_of(owned_by: str | None) -> Dialect:
    """The kind of a server by its own word."""
    return next((dialect for dialect in DIALECTS if dialect.owned_by == owned_by), OTHER)


def path_of(request: GenerationRequest) -> str:
    """Messages go as messages: the server renders them by its model's template."""
    return "/v1/completions" if request.messages is None else "/v1/chat/completions"


def body_of(request: GenerationRequest, model: str, usage: UsageDetail) -> dict[str, Any]:
    """What is asked. Only what differs from a default is said, so that a server need not know it."""
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "max_tokens": request.sampling.max_tokens,
        "temperature": request.sampling.temperature,
        **_prompt(request),
        **_changed(request),
    }
    if usage is not UsageDetail.NONE:
        options = {"include_usage": True}
        if usage is UsageDetail.WITH_EVERY_CHUNK:
            options["continuous_usage_stats"] = True
        body["stream_options"] = options
    return body


def _prompt(request: GenerationRequest) -> dict[str, Any]:
    if request.messages is not None:
        return {"messages": list(request.messages)}
    return {"prompt": request.prompt if request.prompt_ids is None else list(request.prompt_ids)}


def _changed(request: GenerationRequest) -> dict[str, Any]:
    sampling = request.sampling
    changed: dict[str, Any] = {
        field: getattr(sampling, field)
        for field in ("top_p", "top_k", "seed", "stop", "n", "ignore_eos")
        if getattr(sampling, field) != getattr(SAMPLING_DEFAULTS, field)
    }
    if sampling.logprobs is None:
        return changed
    if request.messages is None:
        return changed | {"logprobs": sampling.logprobs}
    return changed | {"logprobs": True, "top_logprobs": sampling.logprobs}
