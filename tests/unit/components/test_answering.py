from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from backends.base import TokenChunk
from backends.errors import EngineDied
from components import answering
from components.answering import Answer


async def tokens(*texts: str) -> AsyncGenerator[TokenChunk, None]:
    for index, text in enumerate(texts):
        yield TokenChunk(text=text, index=index)


class Engine:
    """Gives tokens when told to, and knows when its request was closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str | Exception] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[TokenChunk, None]:
        try:
            while True:
                item = await self.queue.get()
                if isinstance(item, Exception):
                    raise item
                yield TokenChunk(text=item, index=0)
        finally:
            self.closed.set()


async def test_tokens_that_come_at_once_share_an_update_and_none_is_lost() -> None:
    answer = Answer(tokens(*[f"{number} " for number in range(1000)]))
    seen = [answer.text async for _ in answer.updates()]
    assert len(seen) <= 3
    assert seen[-1] == "".join(f"{number} " for number in range(1000))
    assert answer.done
    assert not answer.stopped


async def test_an_update_comes_even_when_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "LOOK_INTERVAL", 0.01)
    engine = Engine()
    answer = Answer(engine.chunks())
    updates = answer.updates()
    for _ in range(3):
        await anext(updates)
    assert answer.text == ""
    await updates.aclose()


async def test_stop_keeps_what_came_and_ends_the_request() -> None:
    engine = Engine()
    answer = Answer(engine.chunks())
    engine.queue.put_nowait("half")
    seen = []
    async for _ in answer.updates():
        seen.append(answer.text)
        if answer.text:
            answer.stop()
    assert engine.closed.is_set()
    assert answer.stopped
    assert seen[-1] == "half"


async def test_whoever_stops_looking_ends_the_request() -> None:
    engine = Engine()
    answer = Answer(engine.chunks())
    engine.queue.put_nowait("half")
    async with aclosing(answer.updates()) as updates:
        async for _ in updates:
            if answer.text:
                break
    assert engine.closed.is_set()


async def test_an_engines_error_is_kept_in_words_beside_what_came() -> None:
    engine = Engine()
    answer = Answer(engine.chunks())
    engine.queue.put_nowait("half")
    engine.queue.put_nowait(EngineDied("It was killed."))
    async for _ in answer.updates():
        pass
    assert answer.text == "half"
    assert answer.error is not None
    assert answer.error.message == "It was killed."


async def test_a_fault_of_our_own_is_not_swallowed() -> None:
    engine = Engine()
    answer = Answer(engine.chunks())
    engine.queue.put_nowait(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        async for _ in answer.updates():
            pass
