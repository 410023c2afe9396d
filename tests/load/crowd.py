"""Many clients at once, each asking again as soon as it has its answer, until the time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx

from tests.load.answers import Answer, Question, Route, question
from tests.load.page_chat import PageChat
from tests.load.streams import ask_openai, ask_teaching

Ask = Callable[[Question], Awaitable[Answer]]


class Crowd:
    """``chats`` visitors of the page, and programs that stream, half of them over each of the two routes."""

    def __init__(self, client: httpx.AsyncClient, backend: str, *, chats: int, streams: int) -> None:
        self._client = client
        self._backend = backend
        self._num_chats = chats
        self._num_streams = streams
        self.answers: list[Answer] = []
        self._deadline = 0.0

    async def ask_for(self, seconds: float) -> None:
        """Ask for so long, or until ``stop``; what is under way then is waited for."""
        page = await PageChat.of(self._client) if self._num_chats else None
        self._deadline = time.monotonic() + seconds

        async def chat(asked: Question) -> Answer:
            assert page is not None
            return await page.ask(self._client, asked, self._backend, visitor_name(asked.client))

        async def openai(asked: Question) -> Answer:
            return await ask_openai(self._client, asked, self._backend)

        async def teaching(asked: Question) -> Answer:
            return await ask_teaching(self._client, asked, self._backend)

        num_openai = (self._num_streams + 1) // 2
        async with asyncio.TaskGroup() as clients:
            for route, ask, count in (
                (Route.CHAT, chat, self._num_chats),
                (Route.OPENAI, openai, num_openai),
                (Route.TEACHING, teaching, self._num_streams - num_openai),
            ):
                for number in range(count):
                    clients.create_task(self._repeat(ask, question(route, number)))

    def stop(self) -> None:
        """Nobody asks again."""
        self._deadline = 0.0

    async def _repeat(self, ask: Ask, asked: Question) -> None:
        while time.monotonic() < self._deadline:
            try:
                answer = await ask(asked)
            except httpx.HTTPError as error:
                answer = Answer(asked, problem=f"{type(error).__name__}: {error}")
            self.answers.append(answer)


def visitor_name(number: int) -> str:
    """The secret id of a page load; the viewer of the same number names it too."""
    return f"load-{number}"


def http_client(address: str) -> httpx.AsyncClient:
    """One pool of connections without a bound: everybody has one of their own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=address, limits=limits, timeout=60, trust_env=False)
