"""Nothing that people, models and engines say runs, wherever on the page it stands: it is read as text.

Recordings and the pages saved from them: ``tests/browser/test_traces.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
from playwright.async_api import Browser, Page, expect
from pytest_asyncio import fixture

from backends.records import TraceHeader
from tests.browser.site import SETTINGS, Complaints, serving
from tests.fakes import FakeBackend

RUNS = "window.hacked=1"
HOSTILE = (
    f"<img src=x onerror={RUNS}><script>{RUNS}</script>{{{{7*7}}}}${{{RUNS}}}"
    f"<svg/onload={RUNS}>[a](javascript:{RUNS})$\\href{{javascript:{RUNS}}}{{x}}$'\"`"
)
TABS = ("playground", "classroom", "lessons", "sizing", "traces", "api")


class HostileEngine(FakeBackend):
    """Whatever it says of itself is an attack, and so is what it answers."""

    def __init__(self, name: str, *, unavailable: str | None = None) -> None:
        words = HOSTILE.split(" ")
        super().__init__(
            name,
            settings=SETTINGS,
            script=lambda index: f" {words[index]}" if index < len(words) else None,
            modes=(HOSTILE, "plain"),
            unavailable=unavailable,
        )
        self.info = msgspec.structs.replace(self.info, title=f"{name} {HOSTILE}")

    def _header(self) -> TraceHeader:
        header = super()._header()
        said = dict.fromkeys(header.notes or {"kv": ""}, HOSTILE)
        return msgspec.structs.replace(
            header, model=HOSTILE, device=HOSTILE, hardware=HOSTILE, versions={"fake": HOSTILE}, notes=said
        )


@fixture(scope="module", loop_scope="session")
async def address() -> AsyncIterator[str]:
    engines = {"naive": HostileEngine("naive"), "generate": HostileEngine("generate", unavailable=HOSTILE)}
    async with serving(engines) as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            asked = [client.post("generate_stream", json={"prompt": HOSTILE}) for _ in range(2)]
            await asyncio.gather(*asked, client.post("generate?backend=generate", json={"prompt": HOSTILE}))
        yield url


@fixture(loop_scope="session")
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    """Fails where something hostile ran, or was stopped only by the policy."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US")
    page = await context.new_page()
    complaints = Complaints(address)
    complaints.listen(page)
    page.on("dialog", lambda dialog: complaints.seen.append(f"dialog: {dialog.message}"))
    yield page
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("img[src=x], svg[onload], [href^='javascript:']").count() == 0
    assert complaints.seen == []
    await context.close()


async def test_whatever_is_said_is_text_wherever_it_stands(page: Page, address: str) -> None:
    """Engines about themselves on every tab; a visitor and a model in the chat, and in the raw frames."""
    await page.goto(address)
    await page.wait_for_function("window.servescope?.store?.connection.phase === 'open'")
    await page.locator("#chat-input textarea").fill(HOSTILE)
    await page.locator("#chat-input textarea").press("Enter")
    for whose in ("user", "bot"):
        await expect(page.locator(f"#chat-log .message.{whose}").last).to_contain_text("{{7*7}}")
    await expect(page.locator("#chat-send")).to_be_enabled()
    await page.locator("#panel-batch canvas").first.hover()
    for tab in TABS[1:]:
        await page.locator(f"#page-tabs [data-tab={tab}]").click()
        await expect(page.locator(f"#tab-{tab}")).to_be_visible()
    await page.locator("#api-prompt").fill(HOSTILE)
    await page.locator("#api-send").click()
    await expect(page.locator("#api-frames")).to_contain_text("{{7*7}}")
    for tab in TABS:
        await page.locator(f"#page-tabs [data-tab={tab}]").click()
        await page.wait_for_load_state("networkidle")
