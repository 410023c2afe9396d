"""What every engine looks like from outside: the ``Backend`` protocol and what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from backends.records import EngineState, FinishReason, Source

if TYPE_CHECKING:
    from backends.recorder import Recorder


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. A backend refuses by name what it cannot honour."""

    max_tokens: int = 128
    temperature: float = 0.7
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    """Texts that continue the prompt, each drawn by itself."""
    logprobs: int | None = None
    """Tell the log probability of each token, and of so many of the most likely ones."""
    ignore_eos: bool = False
    """Go on until ``max_tokens``: for workloads of a known length."""


SAMPLING_DEFAULTS = SamplingParams()


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt on its way to an engine. ``prompt`` is final text: chat templates are applied."""

    request_id: str
    prompt: str
    prompt_ids: tuple[int, ...] | None = None
    """The prompt as token ids, in place of ``prompt``, which is then empty."""
    more_prompts: tuple[str, ...] = ()
    """Further prompts of the same call, which is done when all of them are; not with ``n`` > 1."""
    messages: tuple[dict[str, str], ...] | None = None
    """What ``prompt`` was rendered from, for an engine that renders by itself (a remote server)."""
    sampling: SamplingParams
    source: Source
    stream: bool = True
    """False asks for a whole answer: the naive backend serves those from a pool of their own."""
    mode: str | None = None
    """One of ``BackendInfo.modes``; ``None`` is the first of them."""
    visitor: str | None = None
    """Secret id of a browser tab; its requests are aborted when its WebSocket closes."""
    cache_salt: str | None = None
    """Blocks are shared among requests of one salt only; a name, and meaning, of vLLM's. Engines without
    a prefix cache share nothing anyway."""
    traced: bool = False
    """Stamp each chunk on its way (``TokenChunk.way``)."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt of each text that is asked for."""
        return (self.prompt, *self.more_prompts) if self.more_prompts else (self.prompt,) * self.sampling.n


def sample_id(request_id: str, index: int) -> str:
    """How the records name the texts of a request that asks for several: each runs as one of its own."""
    return f"{request_id}/{index}" if index else request_id


def sample_index(name: str) -> int:
    """The other way round."""
    return int(name.rpartition("/")[2]) if "/" in name else 0


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """When a chunk passed the places behind its engine, in seconds on the clock of the records."""

    handed: float
    """The engine's thread gave it to the event loop."""
    queued: float | None = None
    """The event loop put it into the request's own queue."""
    taken: float | None = None
    """Whoever asked took it out."""


class TokenChunk(msgspec.Struct, frozen=True, kw_only=True):
    """What a request receives. One chunk a token, then one with ``finish_reason`` and no token.

    ``text`` can be empty: a token that is half a character adds nothing until it is whole. The last
    chunk has text where some was held back as the possible start of a stop string that never came.
    """

    text: str
    index: int
    token_id: int | None = None
    sample: int = 0
    """Which of the texts asked for; each ends with a chunk of its own."""
    logprob: float | None = None
    top_logprobs: tuple[tuple[int | str, float], ...] = ()
    """Most likely tokens with theirs, as many as ``SamplingParams.logprobs`` asks for: their ids, or
    their texts where a remote server tells only these."""
    finish_reason: FinishReason | None = None
    num_prompt_tokens: int | None = None
    """On the last chunk, where only a remote server can count (its ``usage``)."""
    num_output_tokens: int | None = None
    """Likewise."""
    way: Way | None = None
    """Where the request is traced."""


class ControlAction(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    STEP = "step"
    SPEED = "speed"
    RESTART = "restart"
    KILL_WORKER = "kill-worker"


class BackendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is, before it has started."""

    name: str
    title: str
    """Shown on the button: ``naive``, ``paged``, ``vLLM`` …"""
    model: str | None = None
    """What it serves, where that is not the operator's ``--model``; empty until it is known."""
    modes: tuple[str, ...] = ()
    """Ways to run a request, the default first (``sequential``, ``static``)."""
    supported: frozenset[str] = frozenset()
    """Fields of ``SamplingParams`` beyond ``max_tokens`` and ``temperature`` that it honours, and
    ``prompt_ids`` where a prompt may be token ids."""
    takes_many_prompts: bool = False
    """A request may bring ``more_prompts``."""
    controls: frozenset[ControlAction] = frozenset()


class Backend(Protocol):
    """An engine as the routes and the page see it.

    All coroutines run on the server's event loop. ``recorder`` holds everything the engine
    emitted; ``state`` is the last ``EngineState`` in it.
    """

    info: BackendInfo
    recorder: Recorder

    @property
    def state(self) -> EngineState: ...

    async def start(self) -> None:
        """Come up and return when ready; at once if it is. Concurrent calls share one start.

        Raises ``EngineUnavailable``.
        """

    async def stop(self) -> None:
        """End the process and every request in flight (``EngineDied``). Idempotent."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        """Serve one request; starts the engine if it is not up.

        Closing it aborts the request: its slot is free within one step.
        Raises ``InvalidRequest`` or ``Overloaded`` before anything is queued, ``EngineDied``
        when the process ends under it.
        """

    async def abort(self, request_id: str) -> None:
        """End a request whose iterator is held elsewhere. Unknown ids are ignored."""

    async def abort_visitor(self, visitor: str) -> None:
        """End every request of a visitor who has left."""

    async def count_prompt_tokens(self, prompt: str) -> int | None:
        """Tokens of a prompt as this engine counts them; ``None`` where only its answer tells."""

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        """Messages (``role``, ``content``) → prompt text by the model's chat template; plain
        text for a model that has none."""

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        """Pause, resume, step, set slow motion (``value`` = seconds before every step),
        restart, or kill the worker process.

        Raises ``NothingToStep``, or ``InvalidRequest`` for an action it does not have.
        """
