"""A browser that draws the same pixels every time: fonts, clock, language and size are held.

What a page shows must not depend on when it is looked at. So its timers run on a clock of ours
(Playwright's): once everything is there, the clock is moved on until a picture equals the one before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from playwright.async_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--disable-partial-raster",
    "--disable-threaded-animation",
    "--disable-checker-imaging",
)

FONTS = {"--sans": '"Noto Sans"', "--mono": '"Liberation Mono"'}
"""Of those that ``assets/css/tokens.css`` asks for, the ones that a Linux machine can have
(on Debian: ``fonts-noto-core fonts-liberation``)."""
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTLING_TIME = 3_000
"""Milliseconds on the page's clock, longer than anything there waits before it draws its last."""
PATIENCE = 90
"""Seconds: a limit for what goes wrong, on a machine that may be busy."""

TAKE_FONTS = """(fonts) => {
    const take = () => {
        for (const [name, family] of Object.entries(fonts)) {
            document.documentElement.style.setProperty(name, family);
        }
    };
    if (document.documentElement !== null) {
        take();
        return;
    }
    const observer = new MutationObserver(() => {
        observer.disconnect();
        take();
    });
    observer.observe(document, {childList: true});
}"""
WIDTHS = """(families) => {
    const pen = document.createElement('canvas').getContext('2d');
    return families.flatMap((family) => [400, 600].map((weight) => {
        pen.font = `${weight} 100px ${family}, serif`;
        return pen.measureText('Servescope: 0123456789 ×Σ²→ block, step').width;
    }));
}"""


@dataclass(frozen=True)
class Shot:
    """One picture of the page."""

    name: str
    query: str
    """The address, from the ``?`` on, without theme and language."""
    ready: tuple[str, ...]
    """Selectors of what must be on the screen."""
    width: int = 1280
    height: int = 720


async def take(browser: Browser, url: str, shot: Shot, theme: str) -> bytes:
    """The picture as a PNG, once nothing in it moves any more. ``theme``: light or dark."""
    async with _page(browser, shot) as page:
        await page.goto(f"{url}?{shot.query}&theme={theme}&lang=en")
        for selector in shot.ready:
            await page.locator(selector).first.wait_for(timeout=PATIENCE * 1000)
        return await _still(page)


async def font_widths(browser: Browser) -> list[float]:
    """How wide a sample is in each of ``FONTS``: where it differs, no picture can be the same."""
    page = await browser.new_page()
    try:
        widths: list[float] = await page.evaluate(WIDTHS, list(FONTS.values()))
        return widths
    finally:
        await page.close()


@asynccontextmanager
async def _page(browser: Browser, shot: Shot) -> AsyncIterator[Page]:
    context = await browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        device_scale_factor=1,
        locale="en-US",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    try:
        await context.clock.install(time=NOW)
        await context.add_init_script(f"({TAKE_FONTS})({json.dumps(FONTS)})")
        yield await context.new_page()
    finally:
        await context.close()


async def _still(page: Page) -> bytes:
    before = None
    async with asyncio.timeout(PATIENCE):
        while True:
            await page.clock.run_for(SETTLING_TIME)
            picture = await page.screenshot(animations="disabled", caret="hide")
            if picture == before:
                return picture
            before = picture
