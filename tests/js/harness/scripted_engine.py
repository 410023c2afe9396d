"""A ``Backend`` whose engine is a scene: its records come at the scene's own pace, or all at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from backends.base import BackendInfo, ControlAction, GenerationRequest, TokenChunk
from backends.errors import InvalidRequest
from backends.gate import Gate
from backends.recorder import Recorder
from backends.records import (
    AnyRecord,
    EngineState,
    State,
    StepRecord,
    TraceHeader,
    decode_record,
    encode_record,
)


class ScriptedEngine:
    """Plays ``records``; ``share`` of them lie there from the start."""

    def __init__(
        self,
        name: str,
        records: list[AnyRecord],
        *,
        share: float = 1.0,
        state: State = State.READY,
        reason: str | None = None,
        progress: float | None = None,
    ) -> None:
        self.info = BackendInfo(
            name=name, title=name, controls=frozenset(ControlAction) - {ControlAction.KILL_WORKER}
        )
        self.recorder = Recorder(name, capacity=200_000, max_bytes=512 * 1024 * 1024)
        self.gate = Gate(lambda: True)
        self._reason, self._progress = reason, progress
        self._time = records[0].start_time if records and isinstance(records[0], TraceHeader) else 0.0
        self._say(state)
        at_once = int(len(records) * share)
        for record in records[:at_once]:
            self._append(record)
        self._rest = records[at_once:]
        self._playing: asyncio.Task[None] | None = None

    @property
    def state(self) -> EngineState:
        assert self.recorder.state is not None
        return self.recorder.state

    async def start(self) -> None:
        if self._playing is None and self._rest:
            self._playing = asyncio.create_task(self._play())

    async def stop(self) -> None:
        self.gate.close()
        if self._playing is not None:
            self._playing.cancel()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        raise InvalidRequest("A scripted engine answers nothing.")
        yield

    async def abort(self, request_id: str) -> None: ...

    async def abort_visitor(self, visitor: str) -> None: ...

    async def count_prompt_tokens(self, prompt: str) -> int:
        return len(prompt.split())

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        return messages[-1]["content"]

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        match action:
            case ControlAction.PAUSE:
                self.gate.pause()
            case ControlAction.RESUME:
                self.gate.resume()
            case ControlAction.STEP:
                self.gate.step()
            case ControlAction.SPEED:
                self.gate.set_delay(value or 0)
            case ControlAction.RESTART:
                self._say(State.RESTARTING)
            case _:
                raise InvalidRequest(f"{self.info.name} has no {action}.")
        self._say(State.PAUSED if self.gate.paused else State.READY)

    def _say(self, state: State) -> None:
        self.recorder.append(
            EngineState(
                backend=self.info.name,
                state=state,
                time=self._time,
                reason=self._reason,
                progress=self._progress,
                step_delay=self.gate.delay,
            )
        )

    async def _play(self) -> None:
        """True gaps between steps; a step waits at the gate."""
        loop = asyncio.get_running_loop()
        for record in self._rest:
            if isinstance(record, StepRecord):
                await loop.run_in_executor(None, self._wait_for_turn)
                await asyncio.sleep(record.duration)
            self._append(record)

    def _wait_for_turn(self) -> None:
        with self.gate.turn(lambda: True):
            pass

    def _append(self, record: AnyRecord) -> None:
        self._time = getattr(record, "time", self._time)
        if isinstance(record, TraceHeader):
            record = msgspec.structs.replace(record, backend=self.info.name)
        self.recorder.append(decode_record(encode_record(record)))
