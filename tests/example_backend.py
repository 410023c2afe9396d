"""A whole backend: it says a prompt backwards, one word a step. See docs/adding-a-backend.md."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from backends import admission
from backends.base import BackendInfo, ControlAction, GenerationRequest, TokenChunk
from backends.errors import InvalidRequest
from backends.lifecycle import Lifecycle
from backends.recorder import Recorder
from backends.records import EngineState, FinishReason, RequestArrived, RequestFinished, TokenEmitted
from backends.settings import Settings


class MirrorBackend:
    """``base.Backend`` without a model: what it must do, and nothing that it may."""

    info = BackendInfo(name="mirror", title="mirror")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.recorder = Recorder(self.info.name)
        self._lifecycle = Lifecycle(self.info.name, self.recorder, self._launch)

    async def _launch(self) -> None:
        """Here an engine starts its process and loads its weights."""

    @property
    def state(self) -> EngineState:
        return self._lifecycle.state

    async def start(self) -> None:
        await self._lifecycle.ensure_ready()

    async def stop(self) -> None:
        await self._lifecycle.stop()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        admission.check_fields(request, self.info, self.settings)
        await self.start()
        name, words = request.request_id, request.prompt.split()
        tell = self.recorder.append
        arrived = RequestArrived(
            request_id=name,
            seat=0,
            num_prompt_tokens=len(words),
            max_tokens=request.sampling.max_tokens,
            source=request.source,
            stream=request.stream,
            time=time.monotonic(),
        )
        tell(arrived)
        reason = FinishReason.ABORT  # unless it comes to its end
        try:
            for index, word in enumerate(words[::-1][: request.sampling.max_tokens]):
                tell(TokenEmitted(request_id=name, index=index, step_id=None, time=time.monotonic()))
                yield TokenChunk(text=f"{word} ", index=index)
            reason = FinishReason.STOP
        finally:
            tell(RequestFinished(request_id=name, reason=reason, time=time.monotonic()))
        yield TokenChunk(text="", index=-1, finish_reason=reason)

    async def abort(self, request_id: str) -> None:
        """Closing ``generate`` is enough: nothing runs between two words."""

    async def abort_visitor(self, visitor: str) -> None:
        """Likewise."""

    async def count_prompt_tokens(self, prompt: str) -> int:
        return len(prompt.split())

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        return " ".join(message["content"] for message in messages)

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        raise InvalidRequest(f"{self.info.title} has no {action}.", field="action")
