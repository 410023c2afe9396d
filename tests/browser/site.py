"""The whole server over scripted engines, in the tests' own event loop, and a page's handles."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import msgspec
import uvicorn
from playwright.async_api import ConsoleMessage, Locator, Page, Request, Response, expect

from app import create_app, server_config
from backends.archive import Archive
from backends.registry import Registry
from backends.settings import Settings
from backends.shelf import Shelf
from tests.fakes import FakeBackend

SETTINGS = Settings(max_model_len=200, max_tokens=150)
SLOTS_PATIENCE = 20
"""Seconds: a limit for what goes wrong."""
TYPES_OF_OURS = ("data:", "blob:")


@dataclass
class Script:
    """What a scripted engine says: word by word, then its end; without words it never ends."""

    words: list[str] | None = None

    def __call__(self, index: int) -> str | None:
        if self.words is None:
            return f" word{index}"
        return self.words[index] if index < len(self.words) else None

    def say(self, text: str) -> None:
        """One token a word, its space before it."""
        first, *rest = text.split(" ")
        self.words = [first, *(f" {word}" for word in rest)]


@dataclass
class Site:
    """A running server; its engines are here to be looked into and meddled with."""

    url: str
    engines: dict[str, FakeBackend]
    scripts: dict[str, Script]

    @property
    def naive(self) -> FakeBackend:
        return self.engines["naive"]

    @property
    def generate(self) -> FakeBackend:
        return self.engines["generate"]

    def say(self, text: str) -> None:
        """What every engine answers from now on, without delay."""
        for name, script in self.scripts.items():
            script.say(text)
            self.engines[name].step_seconds = 0

    async def all_slots_are_free(self) -> None:
        """Within the step under way; fails when a request stays."""
        async with asyncio.timeout(SLOTS_PATIENCE):
            for engine in self.engines.values():
                while engine.num_in_flight:
                    await engine.recorder.wait_for(engine.recorder.version + 1)

    def reset(self) -> None:
        """As before the first test: answers go on for longer than any test looks, a token at a time.
        Engines that were started stay up."""
        for name, engine in self.engines.items():
            self.scripts[name].words = None
            engine.step_seconds = 0.1
            engine.gate.resume()
            engine.may_start.set()


@asynccontextmanager
async def running_site() -> AsyncIterator[Site]:
    """Engines: ``naive``; ``generate``, with modes and every setting; ``slow``, which no other test
    starts; ``broken``, which cannot run."""
    scripts = {name: Script() for name in ("naive", "generate", "slow", "broken")}
    engines = {
        name: FakeBackend(
            name,
            settings=SETTINGS,
            script=script,
            modes=("sequential", "static") if name == "generate" else (),
            unavailable="It needs a part that is not installed." if name == "broken" else None,
        )
        for name, script in scripts.items()
    }
    engines["generate"].info = msgspec.structs.replace(
        engines["generate"].info, supported=frozenset({"top_p", "top_k", "seed"})
    )
    async with serving(engines) as url:
        yield Site(url, engines, scripts)


@asynccontextmanager
async def serving(
    engines: dict[str, FakeBackend], shelf: Shelf | None = None, archive: Archive | None = None
) -> AsyncIterator[str]:
    """The whole server over these engines and recordings, at its address."""
    registry = Registry({name: lambda engine=engine: engine for name, engine in engines.items()})
    app = create_app(SETTINGS, registry, shelf, archive)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = server_config(app, SETTINGS)
        config.timeout_graceful_shutdown = 1
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await serving


@dataclass
class Complaints:
    """What a page must never do: errors on its console, failed requests, requests to other hosts."""

    host: str
    seen: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("request", self._on_request)
        page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.seen.append(f"console {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.host, *TYPES_OF_OURS)):
            self.seen.append(f"another host: {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.seen.append(f"{response.status}: {response.url}")


class ChatPage:
    """A page as a visitor uses it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.input = page.locator("#chat-input textarea")
        self.send = page.locator("#chat-send")
        self.stop = page.locator("#chat-stop")
        self.log = page.locator("#chat-log")
        self.questions = page.locator("#chat-log .message.user .md")
        self.answers = page.locator("#chat-log .message.bot:not(:has(.thought-group)) .md")
        self.errors = page.locator("#chat-log .thought-group:has(.notice-error)")
        self.waiting = page.locator("#chat-log .thought-group:has(.notice-waiting)")
        self.system_prompt = page.locator("#settings-system-prompt textarea")
        self.stopped = page.locator("#chat-log .thought-group:has(.notice-stopped)")

    async def ask(self, text: str) -> None:
        """Send, and wait until the question stands in the log with its answer under way or done."""
        asked = await self.questions.count()
        await self.input.fill(text)
        await self.input.press("Enter")
        await expect(self.questions).to_have_count(asked + 1)

    async def answered(self) -> None:
        """Until the answer under way has ended."""
        await expect(self.send).to_be_enabled()
        await expect(self.stop).to_be_disabled()

    def engine(self, name: str) -> Locator:
        return self.page.locator(f"#backend-choice label:has(input[value={name}])")

    async def fill(self) -> None:
        """Everything that can stand in the chat: questions, an answer, an error; settings open."""
        await self.ask("Hello")
        await self.answered()
        await self.ask("word " * 300)
        await self.answered()
        await self.open_settings()

    async def open_settings(self) -> None:
        await self.page.locator("#settings-title").click()
        await expect(self.page.locator("#settings-seed textarea, #settings-seed input")).to_be_visible()
