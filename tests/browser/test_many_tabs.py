"""A browser opens few connections to one host; a page must not hold one for nothing."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.site import Site


async def test_ten_tabs_of_one_browser_are_all_live(site: Site, open_page: OpenPage) -> None:
    site.say("fine")
    pages = [await open_page() for _ in range(10)]
    site.naive.gate.pause()
    await pages[-1].ask("Hello")
    for page in pages:
        await page.page.wait_for_function(
            """() => [...window.servescope.store.history.live.requests.values()]
                .some(request => !request.finishReason)"""
        )
    site.naive.gate.resume()
    await pages[-1].answered()
    await expect(pages[-1].answers).to_have_text(["fine"])
    await pages[0].ask("Hello")
    await pages[0].answered()
    await expect(pages[0].answers).to_have_text(["fine"])
    await expect(pages[0].page.locator("#header-watching")).to_contain_text("watching")
