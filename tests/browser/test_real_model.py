"""The whole of it: ``python app.py``, SmolLM2 on engines of our own, and pages that watch them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from pytest_asyncio import fixture

from tests.app_server import app_server
from tests.browser.conftest import DESKTOP, OpenPage
from tests.browser.site import ChatPage, Complaints

START_PATIENCE = 240
"""Seconds for an engine to come up; the first time the weights are prepared."""
STEP_PATIENCE = 60_000
"""Milliseconds for some steps of a model without a cache on a busy machine."""

NUM_BLOCKS = 96

pytestmark = pytest.mark.timeout(600)

MY_SHAPES = """() => {
    const { history, lastMine } = window.servescope.store;
    const shapes = [];
    for (let ordinal = history.first; ordinal <= history.last; ordinal += 1) {
        const { step } = history.column(ordinal);
        if (step.rows.some(row => row.request_id === lastMine)) shapes.push(step.input_shape);
    }
    return shapes;
}"""
"""``[rows, columns]`` of every step that had this visitor's request in it."""

IN_FLIGHT = """() => [...window.servescope.store.history.live.requests.values()]
    .filter(request => request.finishReason === null).length"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server whose paged engine's pool fits on the screen."""
    with app_server("--backends", "naive,paged", "--num-blocks", str(NUM_BLOCKS)) as address:
        yield f"{address}/"


@fixture(loop_scope="session")
async def open_page(address: str, browser: Browser) -> AsyncIterator[OpenPage]:
    """A page on the real server, its engine ready."""
    complaints = Complaints(address)
    async with AsyncExitStack() as opened:

        async def open_one(query: str = "", backend: str = "naive", **_: Any) -> ChatPage:
            context = await browser.new_context(viewport=DESKTOP, locale="en-US")
            opened.push_async_callback(context.close)
            page = await context.new_page()
            complaints.listen(page)
            await page.goto(f"{address}?backend={backend}&{query}")
            await page.wait_for_function(
                "name => window.servescope.store?.engines.get(name)?.state === 'ready'",
                arg=backend,
                timeout=START_PATIENCE * 1000,
            )
            return ChatPage(page)

        yield open_one
    assert complaints.seen == []


async def in_flight(page: Page, count: int) -> None:
    """Until the batch and the queues hold so many requests."""
    await page.wait_for_function(f"({IN_FLIGHT})() === {count}", timeout=STEP_PATIENCE)


async def test_tokens_grow_the_batch_by_a_column_a_step_and_stop_frees_the_slot(open_page: OpenPage) -> None:
    page = await open_page()
    await page.open_settings()
    temperature = page.page.locator("#settings-temperature input[type=number]")
    await temperature.fill("0")
    await temperature.press("Tab")
    await page.ask("Count from one to ten in words.")
    lengths = []
    for _ in range(3):
        await page.page.wait_for_function(
            "length => document.querySelector('#chat-log .latest .md').textContent.trim().length > length",
            arg=lengths[-1] if lengths else 0,
            timeout=STEP_PATIENCE,
        )
        lengths.append(len((await page.answers.inner_text()).strip()))
    await page.page.wait_for_function(f"({MY_SHAPES})().length >= 6", timeout=STEP_PATIENCE)
    await expect(page.page.locator("#panel-batch")).to_contain_text("torch.Size([1, ")
    await expect(page.page.locator("#chat-meta")).to_contain_text("first token")
    await page.stop.click()
    await page.answered()
    await in_flight(page.page, 0)
    shapes = await page.page.evaluate(MY_SHAPES)
    assert [rows for rows, _ in shapes] == [1] * len(shapes)
    columns = [columns for _, columns in shapes]
    assert columns == list(range(columns[0], columns[0] + len(columns)))
    assert lengths == sorted(set(lengths))


async def test_a_page_closed_mid_answer_leaves_the_batch(open_page: OpenPage) -> None:
    watching = await open_page()
    leaving = await open_page()
    await leaving.ask("Tell me a long story about the sea.")
    await expect(leaving.answers).to_contain_text(" ", timeout=STEP_PATIENCE)
    await in_flight(watching.page, 1)
    await leaving.page.close()
    await in_flight(watching.page, 0)
    reasons = await watching.page.evaluate(
        "[...window.servescope.store.history.live.requests.values()].map(request => request.finishReason)"
    )
    assert reasons[-1] == "abort"


NUM_COLUMNS = "window.servescope.store.history.last - window.servescope.store.history.first + 1"
POOL = """() => {
    const { live } = window.servescope.store.history;
    const used = [...live.requests.values()].flatMap(request => request.blocks);
    return { numFree: live.pool.numFree, used: new Set(used).size };
}"""


async def test_the_paged_engine_is_stepped_ten_times_by_button_with_two_requests_in_it(
    open_page: OpenPage,
) -> None:
    first, second = await open_page(backend="paged"), await open_page(backend="paged")
    page = first.page
    await page.locator("[data-action=pause]").click()
    await expect(page.locator("[data-action=step]")).to_be_enabled()
    await first.ask("Name three colours.")
    await second.ask("Why is the sky blue?")
    await in_flight(page, 2)
    columns = await page.evaluate(NUM_COLUMNS)
    for press in range(1, 11):
        await page.locator("[data-action=step]").click()
        await page.wait_for_function(f"{NUM_COLUMNS} === {columns + press}", timeout=STEP_PATIENCE)
    rows = await page.evaluate("window.servescope.store.history.live.column.step.rows.length")
    assert rows == 2
    pool = await page.evaluate(POOL)
    assert pool["numFree"] + pool["used"] == NUM_BLOCKS
    await expect(page.locator("#panel-kv")).to_contain_text(f"{pool['used']} of {NUM_BLOCKS} blocks")
    await first.stop.click()
    await second.stop.click()
    await in_flight(page, 0)
    assert (await page.evaluate(POOL))["used"] == 0
    await page.locator("[data-action=pause]").click()
    await expect(page.locator(".scope-status-text")).to_contain_text("ready")
