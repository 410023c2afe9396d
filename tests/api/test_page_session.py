"""What the server keeps of a page while it is open."""

from __future__ import annotations

from backends.settings import Settings
from tests.api.place import place
from tests.fakes import FakeBackend
from tests.load.answers import Route, question
from tests.load.page_chat import PageChat


async def test_a_session_keeps_no_more_after_many_answers_than_after_one() -> None:
    async with place(Settings(), FakeBackend("naive")) as here, here.client() as client:
        page = await PageChat.of(client)
        kept = []
        for number in range(4):
            answer = await page.ask(client, question(Route.CHAT, number), "naive", "visitor")
            assert answer.problem is None
            state = here.page.state_holder["visitor"]
            kept.append((sorted(state.blocks_config.blocks), sorted(state.config_values)))

    assert kept[1:] == kept[:1] * 3


async def test_of_answers_that_are_over_gradio_keeps_and_computes_no_statistics() -> None:
    async with place(Settings(), FakeBackend("naive")) as here, here.client() as client:
        page = await PageChat.of(client)
        for number in range(4):
            assert (await page.ask(client, question(Route.CHAT, number), "naive", "visitor")).problem is None

    queue = here.page.get_blocks()._queue
    assert queue.events_recorded == 4
    assert len(queue.event_analytics) == 1
    assert queue.cached_event_analytics_summary == {"functions": {}}
