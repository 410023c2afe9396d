"""One server and one browser for all tests of the page; a page for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, async_playwright, expect
from pytest_asyncio import fixture

from pictures.camera import CHROMIUM, FLAGS
from tests.browser.site import ChatPage, Complaints, Site, running_site

DESKTOP = {"width": 1440, "height": 900}

expect.set_options(timeout=20_000)
"""Milliseconds: a limit for what goes wrong, on a machine that may be busy."""

OpenPage = Callable[..., Awaitable[ChatPage]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them share one event loop with the server and the browser."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@fixture(scope="session", loop_scope="session")
async def shared_site() -> AsyncIterator[Site]:
    async with running_site() as site:
        yield site


@fixture(loop_scope="session")
async def site(shared_site: Site) -> AsyncIterator[Site]:
    shared_site.reset()
    yield shared_site
    shared_site.reset()
    await shared_site.all_slots_are_free()


@fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@fixture(loop_scope="session")
async def complaints(site: Site) -> AsyncIterator[Complaints]:
    """Fails the test at its end if a page complained; a test that provokes one empties it."""
    complaints = Complaints(site.url)
    yield complaints
    assert complaints.seen == []


@fixture(scope="session", loop_scope="session")
async def desktop(browser: Browser) -> AsyncIterator[BrowserContext]:
    """Pages share its cache, which saves seconds a test; every page load is a visitor of its own."""
    context = await browser.new_context(viewport=DESKTOP, locale="en-US")
    yield context
    await context.close()


@fixture(loop_scope="session")
async def open_page(
    site: Site, browser: Browser, desktop: BrowserContext, complaints: Complaints
) -> AsyncIterator[OpenPage]:
    """``await open_page("?lang=ko", viewport=…)``: a page, drawn and live. Options of a context
    give it one of its own."""
    async with AsyncExitStack() as opened:

        async def open_one(query: str = "", **options: Any) -> ChatPage:
            context = desktop
            if options:
                context = await browser.new_context(**options)
                opened.push_async_callback(context.close)
            page = await context.new_page()
            opened.push_async_callback(page.close)
            complaints.listen(page)
            await page.goto(site.url + query)
            await page.locator("#chat-log .example").first.wait_for(state="attached")
            await page.wait_for_function("window.servescope.store?.connection.phase === 'open'")
            return ChatPage(page)

        yield open_one


@fixture(loop_scope="session")
async def page(open_page: OpenPage) -> ChatPage:
    return await open_page()
