"""Who asks in a mix, and what each of them saw: independent clients that decide by one seed."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from backends.base import ControlAction, GenerationRequest, SamplingParams
from backends.errors import EngineUnavailable, InvalidRequest, Overloaded, ServescopeError
from backends.records import FinishReason, Source, State
from tests.load.mix.site import Site

DEADLINE = 90.0
"""Seconds within which every request must have ended, whatever happens to its engine."""
REFUSED = {Overloaded.code, EngineUnavailable.code, InvalidRequest.code, "rate_limit_exceeded"}
"""Errors of requests that never arrived at an engine."""
PROMPTS = tuple(f" {first} {second}" for first in "abcdefgh" for second in "xyz")


class End(StrEnum):
    """How a request ended for its client."""

    COMPLETE = "complete"
    FAILED = "failed"
    """An error after it had arrived."""
    REFUSED = "refused"
    """An error instead of arriving."""
    LEFT = "left"
    """The client went, after it had got something."""
    LEFT_EARLY = "left early"
    """The client went before it had got anything: nobody but the engine knows whether it arrived."""


@dataclass
class Sent:
    """One request as its client saw it."""

    backend: str
    prompt: str
    request_id: str | None = None
    text: str = ""
    num_tokens: int = 0
    end: End | None = None
    error: str | None = None


@dataclass
class Notes:
    """What all clients saw."""

    sent: list[Sent] = field(default_factory=list)
    races: list[dict[str, Any]] = field(default_factory=list)
    controls: dict[str, int] = field(default_factory=dict)
    num_viewers: int = 0

    def new(self, backend: str, prompt: str) -> Sent:
        sent = Sent(backend, prompt)
        self.sent.append(sent)
        return sent


class Failure(Exception):
    """What a server said instead of an answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


Read = AsyncIterator[str]
"""Tokens as they come; closing it leaves."""


class Visitor:
    """Asks one thing after the other, in ways that its own random numbers choose."""

    def __init__(self, site: Site, notes: Notes, seed: str) -> None:
        self._site = site
        self._notes = notes
        self._random = random.Random(seed)
        self._id = uuid.UUID(int=self._random.getrandbits(128)).hex

    async def run(self, until: float) -> None:
        async with self._site.client(self._id) as client:
            while asyncio.get_running_loop().time() < until:
                await self._ask_once(client)

    async def _ask_once(self, client: httpx.AsyncClient) -> None:
        ways: list[Callable[[httpx.AsyncClient, Sent, int], Read]] = [
            self._chat, self._stream, self._whole, self._openai_stream, self._openai_whole
        ]  # fmt: skip
        way = self._random.choice(ways)
        backend = self._random.choice(list(self._site.engines))
        sent = self._notes.new(backend, self._random.choice(PROMPTS))
        leaves_after = self._random.choice([None, None, None, 0, 1, 5])
        asking = asyncio.create_task(
            self._read(way(client, sent, self._random.randint(1, 48)), sent, leaves_after)
        )
        leaves_in = self._random.uniform(0, 0.3) if leaves_after == 0 else DEADLINE
        done, _ = await asyncio.wait({asking}, timeout=leaves_in)
        if not done and leaves_after != 0:
            raise AssertionError(f"{sent} has not ended within {DEADLINE:g} s")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        if asking.cancelled():
            sent.end = End.LEFT if sent.num_tokens else End.LEFT_EARLY
        else:
            asking.result()

    async def _read(self, tokens: Read, sent: Sent, leaves_after: int | None) -> None:
        try:
            async with aclosing(tokens) as reading:
                async for text in reading:
                    sent.text += text
                    if leaves_after and sent.num_tokens >= leaves_after:
                        sent.end = End.LEFT
                        return
            sent.end = End.COMPLETE
        except Failure as failure:
            sent.error = str(failure)
            sent.end = End.REFUSED if failure.code in REFUSED else End.FAILED

    # Ways to ask

    async def _chat(self, _: httpx.AsyncClient, sent: Sent, max_tokens: int) -> Read:
        """As the page's own handler does."""
        sent.request_id = uuid.UUID(int=self._random.getrandbits(128)).hex
        request = GenerationRequest(
            request_id=sent.request_id,
            prompt=sent.prompt,
            messages=({"role": "user", "content": sent.prompt},),
            sampling=SamplingParams(max_tokens=max_tokens, temperature=0),
            source=Source.CHAT,
            visitor=self._id,
        )
        try:
            async with aclosing(self._site.engines[sent.backend].generate(request)) as chunks:
                async for chunk in chunks:
                    if chunk.finish_reason is FinishReason.ABORT:
                        raise Failure("aborted", "Somebody else ended it.")
                    sent.num_tokens += chunk.finish_reason is None
                    yield chunk.text
        except ServescopeError as error:
            raise Failure(error.code, error.message) from None

    async def _stream(self, client: httpx.AsyncClient, sent: Sent, max_tokens: int) -> Read:
        body = {"prompt": sent.prompt, "max_tokens": max_tokens, "temperature": 0}
        async with aclosing(_frames(client, f"/generate_stream?backend={sent.backend}", body)) as frames:
            async for data in frames:
                sent.request_id = data["sequence_id"]
                sent.num_tokens += 1
                yield data["token"]

    async def _whole(self, client: httpx.AsyncClient, sent: Sent, max_tokens: int) -> Read:
        body = {"prompt": sent.prompt, "max_tokens": max_tokens, "temperature": 0}
        answer = await _post(client, f"/generate?backend={sent.backend}", body)
        sent.request_id = answer["sequence_id"]
        sent.num_tokens = len(answer["generated_text"].split())  # each word is a token
        yield answer["generated_text"]

    async def _openai_stream(self, client: httpx.AsyncClient, sent: Sent, max_tokens: int) -> Read:
        body = {"model": sent.backend, "prompt": sent.prompt, "max_tokens": max_tokens, "temperature": 0}
        async with aclosing(_frames(client, "/v1/completions", body | {"stream": True})) as frames:
            async for data in frames:
                sent.request_id = data["id"].partition("-")[2]
                text = data["choices"][0]["text"]
                sent.num_tokens += len(text.split())  # vLLM can have several in a frame, each a word
                yield text

    async def _openai_whole(self, client: httpx.AsyncClient, sent: Sent, max_tokens: int) -> Read:
        body = {"model": sent.backend, "prompt": sent.prompt, "max_tokens": max_tokens, "temperature": 0}
        answer = await _post(client, "/v1/completions", body)
        sent.request_id = answer["id"].partition("-")[2]
        sent.num_tokens = answer["usage"]["completion_tokens"]
        yield answer["choices"][0]["text"]


async def _post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(path, json=body)
    return _checked(response.status_code, response.text)


async def _frames(
    client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    async with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            _checked(response.status_code, (await response.aread()).decode())
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield _checked(200, line.removeprefix("data: "))


def _checked(status: int, text: str) -> dict[str, Any]:
    """A body. Raises ``Failure`` for an error, at the start or midway."""
    assert status in (200, 429, 502, 503), (status, text)
    body = json.loads(text)
    if "error" in body:
        raise Failure(body["error"].get("code") or body["error"]["type"], body["error"]["message"])
    return dict(body)


async def trouble(
    site: Site, notes: Notes, backend: str, seed: str, until: float, rest: tuple[float, float]
) -> None:
    """Pauses, steps, slows, restarts and kills one engine, now and then; in the end it runs freely."""
    rng = random.Random(seed)
    engine = site.engines[backend]
    kinds = [ControlAction.PAUSE] * 6 + [ControlAction.RESTART, ControlAction.KILL_WORKER]
    async with site.client() as client:
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(rng.uniform(*rest))
            kind = rng.choice(kinds)
            if engine.state.state is State.UNAVAILABLE:  # killed five times in a minute: given up
                kind = ControlAction.RESTART
            if kind not in engine.info.controls:
                continue
            notes.controls[kind] = notes.controls.get(kind, 0) + 1
            response = await site.control(client, backend, kind)
            assert response.status_code in (200, 400), response.text  # 400: there is no process to kill
            if kind is ControlAction.PAUSE:
                for _ in range(rng.randint(0, 4)):
                    stepped = await site.control(client, backend, ControlAction.STEP)
                    assert stepped.status_code in (200, 409), stepped.text
                await asyncio.sleep(rng.uniform(0, 0.3))
                await site.control(client, backend, ControlAction.RESUME)


async def races(site: Site, notes: Notes, seed: str, until: float) -> None:
    """Workloads on one engine or two, some of them stopped."""
    rng = random.Random(seed)
    async with site.client() as client:
        while asyncio.get_running_loop().time() < until:
            entries = rng.sample([name for name in site.engines if name != "remote"], rng.randint(1, 2))
            body = {
                "workload": {"students": rng.randint(1, 4), "output_tokens": [rng.randint(1, 16)]},
                "entries": [{"backend": name} for name in entries],
                "together": rng.random() < 0.5,
            }
            begun = await client.post("/workloads/races", json=body)
            assert begun.status_code in (202, 429), begun.text
            if begun.status_code == 202:
                path = f"/workloads/races/{begun.json()['race_id']}"
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.uniform(0, 0.5))
                    await client.delete(path)
                notes.races.append(await _end_of_race(client, path))


async def _end_of_race(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    version = -1
    async with asyncio.timeout(DEADLINE):
        while True:
            told = (await client.get(f"{path}/events?since={version}")).json()
            version = told["version"]
            if told["state"] in ("done", "stopped"):
                return dict((await client.get(path)).json())


async def come_and_go(site: Site, notes: Notes, seed: str, until: float) -> None:
    """A page that opens with a chat, looks at the feed, or does not, and is closed midway: its request
    must end with it."""
    rng = random.Random(seed)
    while asyncio.get_running_loop().time() < until:
        visitor = Visitor(site, notes, str(rng.random()))
        backend = rng.choice(list(site.engines))
        sent = notes.new(backend, rng.choice(PROMPTS))
        async with site.client() as client, site.feed(f"?backend={backend}&visitor={visitor._id}") as feed:
            notes.num_viewers += 1
            asking = asyncio.create_task(visitor._read(visitor._chat(client, sent, 48), sent, None))
            for _ in range(rng.randint(0, 5)):
                await feed.recv()
            await asyncio.wait({asking}, timeout=rng.uniform(0, 0.5))
        done, _ = await asyncio.wait({asking}, timeout=DEADLINE)
        assert done, f"{sent} goes on although its page was closed"
        await asking
