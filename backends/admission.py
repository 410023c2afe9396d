"""What is refused at the edge, in words, before anything is queued."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from backends.base import SAMPLING_DEFAULTS, BackendInfo, GenerationRequest
from backends.errors import InvalidRequest, Overloaded
from backends.settings import Settings

HIGHEST_TEMPERATURE = 2.0
LONGEST_STEP_DELAY = 60.0
MOST_SAMPLES = 16
MOST_LOGPROBS = 20
RETRY_AFTER = 5.0
"""Seconds that a client is asked to wait when the queue is full."""

ALWAYS_SUPPORTED = frozenset({"max_tokens", "temperature"})


def check_fields(request: GenerationRequest, info: BackendInfo, settings: Settings) -> None:
    """Everything that needs no tokenizer. Raises ``InvalidRequest`` naming the field."""
    sampling = request.sampling
    if request.prompt_ids is not None:
        if "prompt_ids" not in info.supported:
            raise InvalidRequest(f"{info.title} takes a prompt as text, not as token ids.", field="prompt")
    elif not all(prompt.strip() for prompt in request.prompts):
        raise InvalidRequest("The prompt is empty.", field="prompt")
    if request.more_prompts and not (info.takes_many_prompts and sampling.n == 1):
        raise InvalidRequest(f"{info.title} takes one prompt at a time.", field="prompt")
    check_range("max_tokens", sampling.max_tokens, 1, settings.max_tokens)
    check_range("temperature", sampling.temperature, 0, HIGHEST_TEMPERATURE)
    if not 0 < sampling.top_p <= 1:
        raise InvalidRequest(f"top_p is {sampling.top_p}; it must be above 0 and at most 1.", field="top_p")
    check_range("n", sampling.n, 1, MOST_SAMPLES)
    if sampling.logprobs is not None:
        check_range("logprobs", sampling.logprobs, 0, MOST_LOGPROBS)
    check_range("top_k", sampling.top_k, 0, 1_000_000)
    for field in sampling.__struct_fields__:
        changed = getattr(sampling, field) != getattr(SAMPLING_DEFAULTS, field)
        if changed and field not in ALWAYS_SUPPORTED | info.supported:
            raise InvalidRequest(f"{info.title} cannot honour {field}.", field=field)
    check_mode(info, request.mode, field="mode")


def check_mode(info: BackendInfo, mode: str | None, *, field: str) -> None:
    """``None`` is the engine's first mode, or that it has none."""
    if mode is not None and mode not in info.modes:
        modes = ", ".join(info.modes) or "none"
        raise InvalidRequest(f"{info.title} has no mode {mode!r}; it has: {modes}.", field=field)


def check_length(num_prompt_tokens: int, max_model_len: int) -> None:
    """The prompt must leave room for one token at least."""
    if num_prompt_tokens == 0:
        raise InvalidRequest("The prompt has no tokens.", field="prompt")
    if num_prompt_tokens >= max_model_len:
        raise InvalidRequest(
            f"The prompt has {num_prompt_tokens:,} tokens; with at least one token of answer the limit "
            f"is {max_model_len:,}. Shorten it, or clear the conversation.",
            field="prompt",
        )


def check_token_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    """Each must be a token of the model."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"The prompt has token id {token_id}; the model's go from 0 to {vocab_size - 1:,}.",
                field="prompt",
            )


def check_num_texts(num_texts: int, most: int, *, field: str) -> None:
    """One call must not ask for more than could ever wait at once."""
    if num_texts > most:
        raise InvalidRequest(
            f"{num_texts:,} texts are asked for at once; {most:,} is the limit.", field=field
        )


def check_room(num_in_flight: int, most: int) -> None:
    """The queue is bounded. Raises ``Overloaded``."""
    if num_in_flight >= most:
        raise Overloaded(
            f"{num_in_flight:,} requests are waiting or running, and {most:,} is the limit. "
            f"Try again in {RETRY_AFTER:g} s.",
            retry_after=RETRY_AFTER,
        )


def check_step_delay(value: Any) -> float:
    """Seconds of slow motion before every step."""
    if value is None:
        raise InvalidRequest("speed needs step_delay, in seconds.", field="step_delay")
    check_range("step_delay", value, 0, LONGEST_STEP_DELAY)
    return float(value)


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises ``InvalidRequest`` with the value and the limits."""
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidRequest(f"{field} is {value}; it must be from {low:g} to {high:g}.", field=field)
