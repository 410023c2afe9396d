"""The engine ``remote``: servers that run elsewhere, and what can be seen of them from here.

There is no process of ours. A request goes to the least loaded server that is up. Until its first token
it may be tried again, on another server if there is one; after that an error is an error.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

import msgspec
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
)

from backends import admission
from backends.base import BackendInfo, ControlAction, GenerationRequest, TokenChunk
from backends.errors import EngineDied, EngineUnavailable, InvalidRequest
from backends.recorder import Recorder
from backends.records import EngineState, State, TraceHeader
from backends.remote.answer import Answer, Arrived
from backends.remote.client import ServerClient
from backends.remote.conversation import converse
from backends.remote.dialect import EXTENDED
from backends.remote.fleet import Fleet, Server
from backends.remote.header import header_of
from backends.remote.in_flight import RequestsInFlight
from backends.remote.refusals import TryAgain
from backends.settings import Settings
from backends.text import plain_chat

MOST_TRIES = 3
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0
"""Seconds before the same server is tried again; another one is tried at once."""

_back_off = wait_exponential_jitter(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE, jitter=FIRST_PAUSE)


class RemoteBackend:
    """Implements ``base.Backend``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.info = BackendInfo(
            name="remote",
            title="remote",
            model=settings.remote_model or "",
            supported=EXTENDED,  # until it is known what the servers honour
            controls=frozenset({ControlAction.RESTART}),
        )
        self.recorder = Recorder(self.info.name)
        self._in_flight = RequestsInFlight(self.recorder, settings.max_waiting)
        self._fleet: Fleet | None = None
        self._header: TraceHeader | None = None
        """The latest, while servers are up."""
        self._say(State.IDLE)

    @property
    def state(self) -> EngineState:
        return self._state

    async def start(self) -> None:
        """Raises ``EngineUnavailable`` as long as no server is up; they are asked again meanwhile.
        ``EngineDied`` when it is stopped meanwhile."""
        fleet = self._fleet or self._open(State.STARTING)
        await fleet.settle()
        while fleet is not self._fleet:  # connected anew meanwhile
            if self._fleet is None:
                raise EngineDied(f"{self.info.title} was stopped.")
            fleet = self._fleet
            await fleet.settle()
        if not fleet.up:
            raise EngineUnavailable(fleet.problem or f"{self.info.title} was stopped.")

    async def stop(self) -> None:
        fleet, self._fleet = self._fleet, None
        await self._close(fleet, EngineDied("The server is shutting down."))
        self._say(State.IDLE)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenChunk, None]:
        await self.start()
        admission.check_fields(request, self.info, self.settings)
        stream = self._in_flight.start(request, self._ask)
        num_open = request.sampling.n
        try:
            while num_open:
                chunk = await stream.get()
                num_open -= chunk.finish_reason is not None
                yield chunk
        finally:
            await self.abort(request.request_id)

    async def abort(self, request_id: str) -> None:
        await self._in_flight.abort(request_id)

    async def abort_visitor(self, visitor: str) -> None:
        await self._in_flight.abort_visitor(visitor)

    async def count_prompt_tokens(self, prompt: str) -> None:
        """Only the answer tells."""

    async def render_chat(self, messages: list[dict[str, str]]) -> str:
        """In plain text, to be checked only: a server gets the messages, and has its own template."""
        return plain_chat(messages)

    def token_text(self, token: int | str) -> str:
        """Servers name the most likely tokens by their texts."""
        return str(token)

    async def control(self, action: ControlAction, value: float | None = None) -> None:
        """Restart: end what is in flight, forget what is known of the servers and ask them anew."""
        if action is not ControlAction.RESTART:
            raise InvalidRequest(f"{self.info.title} has no {action}.", field="action")
        fleet = self._fleet
        self._open(State.RESTARTING)  # first, so that whoever comes meanwhile does not open a second one
        await self._close(fleet, EngineDied(f"{self.info.title} was connected anew."))

    # Servers that come and go

    def _open(self, state: State) -> Fleet:
        self._header = None
        self._say(state)
        addresses = self.settings.remote_url
        clients = [
            ServerClient(
                address,
                f"Server {number}" if len(addresses) > 1 else "The server",
                key=self.settings.remote_api_key,
                model=self.settings.remote_model,
            )
            for number, address in enumerate(addresses, start=1)
        ]
        self._fleet = Fleet(clients, on_change=self._on_change, on_gauges=self.recorder.append)
        self._fleet.open()
        return self._fleet

    async def _close(self, fleet: Fleet | None, error: EngineDied) -> None:
        """With all that is in flight now."""
        await self._in_flight.fail_all(error)
        if fleet is not None:
            await fleet.close()

    def _on_change(self) -> None:
        """A server has come up, gone down, or become another one."""
        fleet = self._fleet
        if fleet is None:
            return
        if fleet.up:
            self._describe(fleet)
            self._say(State.READY, fleet.problem or None)
        elif self._header is not None:
            self._header = None
            self._say(State.CRASHED, fleet.problem)
        elif fleet.was_asked:
            self._say(State.RESTARTING, fleet.problem)

    def _describe(self, fleet: Fleet) -> None:
        """A header, unless the last one says the same."""
        header = header_of(self.info.name, fleet.servers)
        known = self._header
        if known is not None and header == msgspec.structs.replace(
            known, started_at=header.started_at, start_time=header.start_time
        ):
            return
        self._header = header
        honoured = [server.facts.dialect.fields for server in fleet.up if server.facts is not None]
        self.info = msgspec.structs.replace(
            self.info, model=header.model, supported=frozenset.intersection(*honoured)
        )
        self.recorder.append(header)

    def _say(self, state: State, reason: str | None = None) -> None:
        self._state = EngineState(backend=self.info.name, state=state, reason=reason, time=time.monotonic())
        self.recorder.append(self._state)

    # One request

    async def _ask(self, request: GenerationRequest, take: Callable[[Arrived], None]) -> Answer:
        """Up to ``MOST_TRIES`` times. Raises ``ServescopeError``."""
        fleet = self._fleet
        assert fleet is not None, "requests end before the fleet does"
        tried: set[Server] = set()

        def pause(state: RetryCallState) -> float:
            if any(server not in tried for server in fleet.up):
                return 0.0
            problem = state.outcome.exception() if state.outcome is not None else None
            return max(problem.after if isinstance(problem, TryAgain) else 0.0, _back_off(state))

        async def once() -> Answer:
            server = fleet.pick(avoid=tried)
            tried.add(server)
            try:
                return await converse(server, request, take)
            except TryAgain as problem:
                if problem.is_unreachable:
                    fleet.lost(server, problem.error.message)
                raise

        retrying = AsyncRetrying(
            stop=stop_after_attempt(MOST_TRIES),
            retry=retry_if_exception_type(TryAgain),
            wait=pause,
            reraise=True,
        )
        try:
            return await retrying(once)
        except TryAgain as problem:
            raise problem.error from None
