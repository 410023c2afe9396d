"""Bodies of the ``/v1`` routes, and what they ask of an engine.

Strict: a number in quotes is a mistake. A field that would change the answer and is not known here
is refused by name; one that asks for nothing (``tools: null``, ``presence_penalty: 0``) passes.
``null`` stands for a field's default, as in OpenAI's API.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backends.admission import MOST_LOGPROBS, check_range
from backends.api.openai_values import Content, NotEmpty, Prompts, Stops
from backends.base import SamplingParams
from backends.errors import InvalidRequest

ALL_TOKENS = -1
"""``top_k`` as vLLM's clients say that it keeps all."""
IDLE_VALUES: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "include_obfuscation": (False,),
    # Of a message, as an answer is sent back:
    "tool_calls": ([],),
    "annotations": ([],),
    # vLLM's extensions, which load tools write out:
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "use_beam_search": (False,),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "return_token_ids": (False,),
    "priority": (0,),
}
"""Fields not known here → the values with which they ask for nothing, as any does with ``null``."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_what_asks_for_nothing(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            key: value for key, value in data.items() if key in cls.model_fields or not _is_idle(key, value)
        }


def _is_idle(key: str, value: Any) -> bool:
    """``True`` is not taken for 1, nor ``False`` for 0."""
    return value is None or any(
        value == idle and isinstance(value, bool) == isinstance(idle, bool)
        for idle in IDLE_VALUES.get(key, ())
    )


class StreamOptions(_Strict):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    """vLLM's: what was used so far, with each token. Without ``include_usage`` it asks for nothing."""


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Content

    def for_template(self) -> dict[str, str]:
        """``developer`` is OpenAI's newer word for ``system``; templates know the old one."""
        return {"role": "system" if self.role == "developer" else self.role, "content": self.content}


class SamplingBody(_Strict):
    """What both routes take. ``temperature`` is 1.0 by default, as in OpenAI's API, where the
    teaching routes have 0.7. ``max_tokens`` defaults to what the model's limit and the operator's
    leave room for. ``top_k``, ``ignore_eos`` and ``min_tokens`` are vLLM's extensions."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stops = ()
    n: int | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=256)
    """Blocks are shared with requests of the same salt only; another extension of vLLM's."""
    user: str | None = None
    """Who asks, for OpenAI's own statistics: without effect on the answer, and so are the next."""
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    @property
    def usage_told(self) -> StreamOptions:
        """What a stream says of its usage."""
        return self.stream_options or StreamOptions()

    @property
    def max_tokens_field(self) -> str:
        """The name by which the client knows it."""
        return "max_tokens"

    @property
    def asked_max_tokens(self) -> int | None:
        return self.max_tokens

    @property
    @abstractmethod
    def asked_logprobs(self) -> int | None:
        """How many of the most likely tokens to tell with each; ``None``: nothing."""

    def sampling(self, max_tokens: int) -> SamplingParams:
        """Raises ``InvalidRequest`` for fields that contradict each other."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options needs stream: true.", field="stream_options")
        self._check_min_tokens()
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=0 if self.top_k in (None, ALL_TOKENS) else self.top_k,
            seed=self.seed,
            stop=self.stop,
            n=1 if self.n is None else self.n,
            logprobs=self.asked_logprobs,
            ignore_eos=bool(self.ignore_eos),
        )

    def _check_min_tokens(self) -> None:
        """No engine puts an end off, but where nothing ends a text early, ``min_tokens`` holds."""
        if not self.min_tokens:
            return
        if self.asked_max_tokens is not None:
            check_range("min_tokens", self.min_tokens, 0, self.asked_max_tokens)
        if not self.ignore_eos or self.stop:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens}; it needs ignore_eos: true and no stop.", field="min_tokens"
            )


class ChatBody(SamplingBody):
    messages: Annotated[list[Message], NotEmpty]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def for_template(self) -> tuple[dict[str, str], ...]:
        return tuple(message.for_template() for message in self.messages)

    @property
    def max_tokens_field(self) -> str:
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def asked_max_tokens(self) -> int | None:
        if self.max_completion_tokens is None:
            return self.max_tokens
        if self.max_tokens is not None and self.max_tokens != self.max_completion_tokens:
            raise InvalidRequest(
                f"max_tokens is {self.max_tokens} and max_completion_tokens {self.max_completion_tokens}; "
                "they mean the same: give one.",
                field="max_tokens",
            )
        return self.max_completion_tokens

    @property
    def asked_logprobs(self) -> int | None:
        if self.top_logprobs is not None:
            if not self.logprobs:
                raise InvalidRequest("top_logprobs needs logprobs: true.", field="top_logprobs")
            check_range("top_logprobs", self.top_logprobs, 0, MOST_LOGPROBS)
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(SamplingBody):
    prompt: Prompts
    logprobs: int | None = None

    @property
    def asked_logprobs(self) -> int | None:
        return self.logprobs
