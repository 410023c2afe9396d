"""The engine ``remote`` through good and bad days: state, choice of server, tries, aborts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from backends.base import ControlAction
from backends.errors import (
    EngineDied,
    EngineUnavailable,
    InvalidRequest,
    Overloaded,
    ServescopeError,
    UpstreamError,
)
from backends.records import (
    EngineGauges,
    EngineState,
    FinishReason,
    RequestArrived,
    RequestFinished,
    State,
    TokenEmitted,
    TraceHeader,
)
from backends.remote import conversation, fleet
from backends.remote.engine import RemoteBackend
from tests.engine_harness import Client, Watch
from tests.remote_servers.base import WORDS, RemoteServer, running
from tests.remote_servers.dialects import LlamaCpp, LlamaCppPython, Ollama, Vllm
from tests.unit.remote.harness import all_up, answer, chat, reaches, records_of, remote, text_of


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions to a server that is down."""
    monkeypatch.setattr(fleet, "FIRST_BACK_OFF", 0.01)
    monkeypatch.setattr(fleet, "LONGEST_BACK_OFF", 0.05)


@asynccontextmanager
async def fronting(*servers: RemoteServer, **settings: object) -> AsyncIterator[RemoteBackend]:
    """The engine, started, in front of these."""
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(running(server)) for server in servers]
        engine = await stack.enter_async_context(remote(*addresses, **settings))
        await engine.start()
        await all_up(engine)
        yield engine


async def watch_until(engine: RemoteBackend, condition: object) -> None:
    await Watch(engine).until(condition)


def held(server: RemoteServer) -> RemoteServer:
    """Every chunk waits until the test lets one go."""
    server.gate = asyncio.Semaphore(0)
    return server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def states(engine: RemoteBackend) -> list[str]:
    """Every state there was, repetitions folded."""
    told = [record.state.value for record in records_of(engine.recorder, EngineState)]
    return [state for index, state in enumerate(told) if index == 0 or told[index - 1] != state]


# Coming up, going down


async def test_it_is_idle_until_it_is_asked_and_tells_what_it_is_before_it_is_ready() -> None:
    async with running(Vllm()) as address, remote(address) as engine:
        assert engine.state.state is State.IDLE
        await asyncio.gather(*(engine.start() for _ in range(5)))
        kinds = [type(entry.record) for entry in engine.recorder.since(0)]
        assert states(engine) == ["idle", "starting", "ready"]
        assert kinds[:4] == [EngineState, EngineState, TraceHeader, EngineState]


async def test_a_request_starts_it() -> None:
    async with running(Vllm()) as address, remote(address) as engine:
        assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


async def test_a_server_that_is_not_there_is_said_at_once_and_used_when_it_comes() -> None:
    port = free_port()
    async with remote(f"http://127.0.0.1:{port}") as engine:
        with pytest.raises(
            EngineUnavailable, match="The server cannot be reached: the connection is refused"
        ):
            await engine.start()
        state = await reaches(engine, State.RESTARTING)
        assert state.reason is not None
        assert "Asked again in" in state.reason
        with pytest.raises(EngineUnavailable):
            await answer(engine, chat())
        assert records_of(engine.recorder, RequestArrived) == []
        async with running(Vllm(), port):
            await reaches(engine, State.READY)
            assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


async def test_a_server_that_goes_is_a_crash_and_its_return_is_a_start() -> None:
    async with remote_and_port() as (engine, port):
        async with running(Vllm(), port):
            await engine.start()
        with pytest.raises(ServescopeError, match="The server"):
            await answer(engine, chat())
        await reaches(engine, State.RESTARTING)
        async with running(Ollama(), port):
            await reaches(engine, State.READY)
        assert states(engine) == ["idle", "starting", "ready", "crashed", "restarting", "ready"]
        assert [header.model for header in records_of(engine.recorder, TraceHeader)] == [
            Vllm.model,
            Ollama.model,
        ]
        assert "top_k" not in engine.info.supported


@asynccontextmanager
async def remote_and_port() -> AsyncIterator[tuple[RemoteBackend, int]]:
    port = free_port()
    async with remote(f"http://127.0.0.1:{port}") as engine:
        yield engine, port


async def test_with_one_of_two_down_it_is_ready_and_says_which() -> None:
    server = Vllm()
    async with running(server) as address, remote(f"http://127.0.0.1:{free_port()}", address) as engine:
        await engine.start()
        await watch_until(engine, lambda: engine.state.state is State.READY and engine.state.reason)
        assert engine.state.reason.startswith("Server 1 cannot be reached")
        for index in range(3):
            await answer(engine, chat(f"r{index}"))
    assert len(server.asked) == 3


async def test_a_wrong_key_is_a_state_with_a_reason() -> None:
    server = Vllm()
    server.key = "right"
    async with running(server) as address, remote(address, remote_api_key="wrong") as engine:
        with pytest.raises(EngineUnavailable, match=r"refuses the key \(401\)"):
            await engine.start()
    async with running(server) as address, remote(address, remote_api_key="right") as engine:
        assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_an_address_may_end_in_v1_or_not(suffix: str) -> None:
    async with running(Vllm()) as address, remote(address + suffix) as engine:
        await engine.start()
        assert engine.state.state is State.READY


async def test_a_name_and_password_in_the_address_are_used() -> None:
    server = Vllm()
    async with (
        running(server) as address,
        remote(address.replace("http://", "http://me:s3cret@")) as engine,
    ):
        await answer(engine, chat())
    assert {headers["authorization"] for headers in server.headers} == {"Basic bWU6czNjcmV0"}


async def test_the_named_model_is_asked_for() -> None:
    server = Vllm()
    async with running(server) as address, remote(address, remote_model="an-adapter") as engine:
        await answer(engine, chat())
        assert engine.recorder.header.model == "an-adapter"
    assert server.asked[0]["model"] == "an-adapter"


async def test_a_server_without_a_list_of_models_needs_a_name() -> None:
    class Unlisted(Vllm):
        async def _get(self, request: object) -> Response:
            return PlainTextResponse("404", 404)

    async with running(Unlisted()) as address:
        async with remote(address) as engine:
            with pytest.raises(EngineUnavailable, match="one has to be named"):
                await engine.start()
        async with remote(address, remote_model="m") as engine:
            assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


# Which server


async def test_requests_go_to_the_least_loaded() -> None:
    servers = [held(Vllm()), held(Vllm())]
    async with fronting(*servers) as engine:
        clients = []
        for index in range(4):
            clients.append(Client(engine, chat(f"r{index}")))
            await watch_until(
                engine, lambda count=index: len(records_of(engine.recorder, RequestArrived)) > count
            )
        await asyncio.gather(*(server.receives(2) for server in servers))
        assert [len(server.asked) for server in servers] == [2, 2]
        for _ in range(50):
            servers[1].gate.release()
        await asyncio.wait({client.task for client in clients}, return_when=asyncio.FIRST_COMPLETED)
        await watch_until(engine, lambda: len(records_of(engine.recorder, RequestFinished)) == 2)
        clients.append(Client(engine, chat("r4")))
        await servers[1].receives(3)
        for client in clients:
            await client.leave()


async def test_of_equals_the_one_with_less_work_of_others_is_taken() -> None:
    busy, idle = Vllm(), Vllm()
    busy.num_running = 9
    async with fronting(busy, idle) as engine:
        await watch_until(
            engine, lambda: {told.server for told in records_of(engine.recorder, EngineGauges)} == {0, 1}
        )
        for index in range(3):
            await answer(engine, chat(f"r{index}"))
    assert (len(busy.asked), len(idle.asked)) == (0, 3)


async def test_equals_in_all_take_turns() -> None:
    servers = [Ollama(), Ollama(), Ollama()]
    async with fronting(*servers) as engine:
        for index in range(6):
            await answer(engine, chat(f"r{index}"))
    assert [len(server.asked) for server in servers] == [2, 2, 2]


async def test_only_what_all_servers_honour_is_offered() -> None:
    async with fronting(Vllm(), LlamaCpp()) as engine:
        await watch_until(engine, lambda: len(records_of(engine.recorder, TraceHeader)[-1].versions) == 2)
        assert engine.recorder.header.versions == {
            "vllm (Server 1)": "0.32.0",
            "llama.cpp (Server 2)": "b7187-7fb18910",
        }
        with pytest.raises(InvalidRequest, match="cannot honour n"):
            await answer(engine, chat(n=2))


# Tries


async def test_before_the_first_token_another_server_is_tried() -> None:
    servers = [Ollama(), Ollama()]
    for server in servers:
        server.refusals = [PlainTextResponse("overheated", 503)]
    async with fronting(*servers) as engine:
        assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)
    assert sorted(len(server.asked) for server in servers) == [1, 2]


async def test_after_three_tries_the_last_reason_is_told() -> None:
    server = Ollama()
    server.refusals = [PlainTextResponse(f"reason {index}", 502) for index in range(9)]
    async with fronting(server) as engine:
        with pytest.raises(UpstreamError, match="reason 2"):
            await answer(engine, chat())
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 500, 501])
async def test_what_another_try_would_not_change_is_not_tried_again(status: int) -> None:
    server = Ollama()
    server.refusals = [JSONResponse({"error": {"message": "no"}}, status)]
    async with fronting(server) as engine:
        with pytest.raises(ServescopeError):
            await answer(engine, chat())
        assert engine.state.state is State.READY
    assert len(server.asked) == 1


async def test_a_busy_server_is_waited_for_as_it_asks() -> None:
    server = Ollama()
    server.refusals = [Response(status_code=429, headers={"Retry-After": "0"})]
    async with fronting(server) as engine:
        assert text_of(await answer(engine, chat(max_tokens=9))) == "".join(WORDS)


async def test_a_server_that_asks_for_too_much_patience_is_overload_and_says_how_much() -> None:
    server = Ollama()
    server.refusals = [Response(status_code=429, headers={"Retry-After": "60"})]
    async with fronting(server) as engine:
        with pytest.raises(Overloaded) as refused:
            await answer(engine, chat())
    assert refused.value.retry_after == 60
    assert len(server.asked) == 1


async def test_a_server_that_refuses_stream_options_is_asked_without_and_that_is_remembered() -> None:
    class Strict(Ollama):
        known = ("include_usage",)

        def refuse(self, body: dict, *, is_chat: bool) -> Response | None:
            unknown = [name for name in body.get("stream_options", {}) if name not in self.known]
            if not unknown and (self.known or "stream_options" not in body):
                return None
            name = f"stream_options.{unknown[0]}" if self.known else "stream_options"
            return JSONResponse({"error": {"message": f"Unknown parameter: '{name}'.", "param": name}}, 400)

    class Stricter(Strict):
        known = ()

    for server, counts in ((Strict(), [len(WORDS)] * 2), (Stricter(), [None, None])):
        async with fronting(server) as engine:
            for name in ("r0", "r1"):
                await answer(engine, chat(name, max_tokens=9))
            finished = records_of(engine.recorder, RequestFinished)
        assert [record.num_output_tokens for record in finished] == counts
        assert len(server.asked) == (3 if server.known else 4)


async def test_a_refusal_that_repeats_the_request_does_not_cost_the_counts() -> None:
    class Repeating(Vllm):
        def refuse(self, body: dict, *, is_chat: bool) -> Response | None:
            return JSONResponse({"detail": f"bad seed in {body}"}, 400) if body.get("seed") == 13 else None

    server = Repeating()
    async with fronting(server) as engine:
        with pytest.raises(InvalidRequest, match="bad seed"):
            await answer(engine, chat(seed=13))
        await answer(engine, chat("r1"))
    assert server.asked[-1]["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


# Ends


async def test_closing_the_answer_closes_the_connection() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        client = Client(engine, chat())
        server.gate.release()
        await client.receives(1)
        await client.leave()
        await server.closed.wait()
        [finished] = records_of(engine.recorder, RequestFinished)
    assert finished.reason is FinishReason.ABORT
    assert server.num_open == 0


async def test_an_abort_from_elsewhere_ends_the_answer() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        client = Client(engine, chat(n=2))
        server.gate.release()
        await client.receives(2)
        await engine.abort("r0")
        await client.task
        await server.closed.wait()
        assert [chunk.finish_reason for chunk in client.chunks[-2:]] == [FinishReason.ABORT] * 2
        assert {chunk.sample for chunk in client.chunks[-2:]} == {0, 1}
        await engine.abort("r0")
        await engine.abort("never heard of")


async def test_a_visitor_who_leaves_takes_only_his_own_requests_along() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        his, hers = Client(engine, chat("his", visitor="x")), Client(engine, chat("hers", visitor="y"))
        await server.receives(2)
        await engine.abort_visitor("x")
        await his.task
        [finished] = records_of(engine.recorder, RequestFinished)
        assert (finished.request_id, finished.reason) == ("his", FinishReason.ABORT)
        await hers.leave()


async def test_stopping_tells_everyone_in_flight_and_leaves_nothing_open() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        client = Client(engine, chat())
        await server.receives(1)
        await engine.stop()
        await client.task
        assert isinstance(client.error, EngineDied)
        assert engine.state.state is State.IDLE
        await server.closed.wait()
        assert text_of(await held_answer(engine, server)) == "".join(WORDS)


async def held_answer(engine: RemoteBackend, server: RemoteServer) -> list:
    for _ in range(50):
        server.gate.release()
    return await answer(engine, chat("again", max_tokens=9))


async def test_a_restart_asks_the_servers_anew_and_ends_what_is_in_flight() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        client = Client(engine, chat())
        await server.receives(1)
        await engine.control(ControlAction.RESTART)
        await client.task
        assert isinstance(client.error, EngineDied)
        await reaches(engine, State.READY)
        assert len(records_of(engine.recorder, TraceHeader)) == 2


async def test_a_request_ends_though_whoever_gave_it_up_is_cancelled_meanwhile() -> None:
    server = Vllm()
    server.gate = asyncio.Semaphore(1)
    async with fronting(server) as engine:
        watch = Watch(engine)
        client = Client(engine, chat())
        await client.receives(1)
        client.task.cancel()
        for _ in range(3):  # it comes to wait for the connection to be closed
            await asyncio.sleep(0)
            client.task.cancel()
        await asyncio.gather(client.task, return_exceptions=True)
        await watch.until(lambda: "r0" in watch.finished())
        assert watch.finished() == {"r0": FinishReason.ABORT}
        assert engine._in_flight._running == {}
        assert engine._in_flight._seats._seat_of == {}


class Speechless(Vllm):
    """Says what it is when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_say = asyncio.Event()

    async def _get(self, request: Request) -> Response:
        await self.may_say.wait()
        return await super()._get(request)


async def test_who_waits_for_a_server_waits_on_when_it_is_connected_anew() -> None:
    server = Speechless()
    async with running(server) as address, remote(address) as engine:
        client = Client(engine, chat(max_tokens=9))
        await reaches(engine, State.STARTING)
        await engine.control(ControlAction.RESTART)
        server.may_say.set()
        await client.task
        assert client.error is None
        assert client.text == "".join(WORDS)


async def test_who_waits_for_a_server_is_told_when_the_engine_is_stopped() -> None:
    server = Speechless()
    async with running(server) as address, remote(address) as engine:
        client = Client(engine, chat())
        await reaches(engine, State.STARTING)
        await engine.stop()
        await client.task
        assert isinstance(client.error, EngineDied)
        server.may_say.set()


@pytest.mark.parametrize(
    "action", [action for action in ControlAction if action is not ControlAction.RESTART]
)
async def test_a_server_elsewhere_can_be_neither_paused_nor_killed(action: ControlAction) -> None:
    async with remote("http://127.0.0.1:9") as engine:
        with pytest.raises(InvalidRequest, match=f"remote has no {action}"):
            await engine.control(action)


async def test_stamps_are_of_the_socket_however_slowly_the_answer_is_read() -> None:
    async with fronting(Vllm()) as engine:
        chunks = engine.generate(chat(max_tokens=9))
        first = await anext(chunks)
        await watch_until(engine, lambda: records_of(engine.recorder, RequestFinished))
        assert len(records_of(engine.recorder, TokenEmitted)) == len(WORDS)
        assert first.text + text_of([chunk async for chunk in chunks]) == "".join(WORDS)


async def test_no_more_wait_than_may() -> None:
    server = held(Vllm())
    async with fronting(server, max_waiting=2) as engine:
        clients = [Client(engine, chat(f"r{index}")) for index in range(2)]
        await server.receives(2)
        with pytest.raises(Overloaded):
            await answer(engine, chat("r2"))
        for client in clients:
            await client.leave()
        for _ in range(50):
            server.gate.release()
        assert text_of(await answer(engine, chat("r3", max_tokens=9))) == "".join(WORDS)


async def test_seats_are_given_back() -> None:
    async with fronting(Vllm()) as engine:
        for index in range(3):
            await answer(engine, chat(f"r{index}", n=2))
        assert {record.seat for record in records_of(engine.recorder, RequestArrived)} == {0, 1}


# Patience


@pytest.mark.parametrize(
    ("limit", "num_tokens", "words"),
    [
        ("FIRST_TOKEN_TIMEOUT", 0, "sent no token within 0.05 s"),
        ("BETWEEN_TOKENS_TIMEOUT", 2, "sent no further token for 0.05 s"),
    ],
)
async def test_patience_has_an_end(
    monkeypatch: pytest.MonkeyPatch, limit: str, num_tokens: int, words: str
) -> None:
    monkeypatch.setattr(conversation, limit, 0.05)
    server = held(Vllm())
    for _ in range(num_tokens):
        server.gate.release()
    async with fronting(server) as engine:
        client = Client(engine, chat())
        await client.task
        assert isinstance(client.error, UpstreamError)
        assert words in client.error.message
        assert len(client.tokens) == num_tokens
        await server.closed.wait()
    assert len(server.asked) == 1  # another try would double the load of a server that is slow


async def test_figures_are_read_while_a_request_runs() -> None:
    server = held(Vllm())
    async with fronting(server) as engine:
        client = Client(engine, chat())
        await server.receives(1)
        server.num_running = 1
        await watch_until(
            engine, lambda: any(told.num_running == 1 for told in records_of(engine.recorder, EngineGauges))
        )
        await client.leave()


async def test_a_server_without_figures_is_left_alone_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other question ends an answer of llama-cpp-python."""
    monkeypatch.setattr(fleet, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(fleet, "IDLE_LOOKS", 1)
    busy, idle = held(LlamaCppPython()), LlamaCppPython()
    async with fronting(busy, idle) as engine:
        client = Client(engine, chat())
        await busy.receives(1)
        before, seen = len(busy.headers), len(idle.headers)
        await idle.is_asked(seen + 20)
        assert len(busy.headers) - before <= 1  # one that was on its way already
        await client.leave()
        await busy.is_asked(before + 4)


# What nobody may see


async def test_a_host_with_the_name_of_its_model_is_hidden_in_errors_only() -> None:
    class Named(Vllm):
        model = "localhost"

    server = Named()
    server.refusals = [JSONResponse({"error": {"message": "localhost is full"}}, 400)]
    async with running(server) as address, remote(address.replace("127.0.0.1", "localhost")) as engine:
        with pytest.raises(InvalidRequest, match=r"The server: \.\.\. is full"):
            await answer(engine, chat())
        await answer(engine, chat("r1"))
    assert {body["model"] for body in server.asked} == {"localhost"}


async def test_neither_address_nor_key_is_in_any_record_or_error() -> None:
    class Chatty(Vllm):
        """Repeats everything that it knows of its caller."""

        def refuse(self, body: dict, *, is_chat: bool) -> Response | None:
            told = self.headers[-1]
            return JSONResponse({"error": {"message": f"{told['host']} {told['authorization']} no"}}, 400)

    server = Chatty()
    errors: list[ServescopeError] = []
    async with running(server) as address, remote(address, remote_api_key="k3y-of-ours") as engine:
        client = Client(engine, chat())
        await client.task
        errors.append(client.error)
        port = address.rpartition(":")[2]
    with_password = address.replace("http://", "http://me:s3cret@")
    async with remote(with_password, "http://no-such-host.invalid:1/v1") as gone:
        with pytest.raises(EngineUnavailable) as unavailable:
            await gone.start()
        errors.append(unavailable.value)
    lines = [entry.line for backend in (engine, gone) for entry in backend.recorder.since(0)]
    shown = b"".join(lines).decode() + "".join(error.message for error in errors)
    assert "no" in errors[0].message
    for secret in ("k3y-of-ours", "s3cret", "no-such-host", "127.0.0.1", f":{port}", address):
        assert secret not in shown
    assert address not in repr(engine.settings)
    assert "k3y-of-ours" not in repr(engine.settings)
