"""The page in a real browser beside the load: how late its panels are, and what they keep."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psutil
from playwright.async_api import CDPSession, Page, Route, async_playwright

from pictures.camera import CHROMIUM, FLAGS
from tests.load.server import MIB

DESKTOP = {"width": 1440, "height": 900}
CLOCK_LOOKS = 50
BUDGET = re.compile(r"^const BUDGET = .*$", re.MULTILINE)
"""Of the page's history, in ``assets/js/history.js``."""

INSTRUMENT = """() => {
    const seen = window.loadSeen = {waiting: [], lateness: [], draws: []};
    const {store} = window.servescope;
    const add = store.add.bind(store);
    const timeOf = (record) => (record.type === 'step' ? record.start_time + record.duration : record.time);
    store.add = (records) => {
        add(records);
        for (const record of records) {
            if (record.type === 'step' || record.type === 'token') seen.waiting.push(timeOf(record));
        }
    };
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        clear.apply(this, box);
        if (this.canvas.closest('#panel-batch') === null) return;
        const shown = seen.waiting.splice(0);
        if (shown.length === 0) return;
        requestAnimationFrame(() => {
            const now = performance.now() / 1000;
            seen.draws.push(now);
            for (const recorded of shown) seen.lateness.push([now, recorded]);
        });
    };
}"""
"""Steps and tokens wait from their arrival in the page until the batch panel is drawn anew; the animation
frame after that one begins when it is on the screen."""

TAKE = """() => {
    const {lateness, draws} = window.loadSeen;
    return {lateness: lateness.splice(0), draws: draws.splice(0)};
}"""


class Pixels(msgspec.Struct, frozen=True):
    """From record to pixel."""

    lateness: list[float]
    """Seconds, of each step and each token."""
    draws: list[float]
    """When the batch panel was drawn with something new in it."""
    clock_error: float
    """The page's clock and the engine's were compared to within so many seconds."""


class Weight(msgspec.Struct, frozen=True):
    """What the page holds, after everything that nobody refers to was collected."""

    heap: float
    """MiB of JavaScript's heap."""
    history: float
    """The part of it that the page keeps to scrub through, as it counts it itself: it grows to a bound."""
    nodes: int
    """Of the document, those that scripts still hold included."""
    listeners: int
    memory: float
    """MiB of all the browser's processes (PSS)."""


class LivePage:
    def __init__(self, page: Page, session: CDPSession, browser: psutil.Process) -> None:
        self.page = page
        self._session = session
        self._browser = browser

    async def begin(self) -> None:
        """From here on lateness is measured."""
        self._offset, self._error = await self._compare_clocks()
        await self.page.evaluate(INSTRUMENT)

    async def pixels(self) -> Pixels:
        """What was measured since the last time."""
        taken = await self.page.evaluate(TAKE)
        return Pixels(
            [drawn + self._offset - recorded for drawn, recorded in taken["lateness"]],
            [drawn + self._offset for drawn in taken["draws"]],
            self._error,
        )

    async def _compare_clocks(self) -> tuple[float, float]:
        """What to add to the page's clock for the monotonic one, and how far off that can be: half of the
        shortest round trip."""
        best = (0.0, float("inf"))
        for _ in range(CLOCK_LOOKS):
            before = time.monotonic()
            there = await self.page.evaluate("performance.now() / 1000")
            after = time.monotonic()
            best = min(best, ((before + after) / 2 - there, (after - before) / 2), key=lambda pair: pair[1])
        return best

    async def weight(self) -> Weight:
        await self._session.send("HeapProfiler.collectGarbage")
        answer = await self._session.send("Performance.getMetrics")
        metrics = {metric["name"]: metric["value"] for metric in answer["metrics"]}
        return Weight(
            metrics["JSHeapUsedSize"] / MIB,
            await self.page.evaluate("window.servescope.store.history.size") / MIB,
            int(metrics["Nodes"]),
            int(metrics["JSEventListeners"]),
            self._memory(),
        )

    def _memory(self) -> float:
        sizes = []
        for process in [self._browser, *self._browser.children(recursive=True)]:
            try:
                sizes.append(process.memory_full_info().pss)
            except psutil.NoSuchProcess:  # it ended meanwhile
                continue
        return sum(sizes) / MIB


@asynccontextmanager
async def live_page(address: str, backend: str, *, history: float | None = None) -> AsyncIterator[LivePage]:
    """The page, drawn and live, in a browser of its own. ``history``: the MiB that it keeps to scrub through,
    where that is to be full before long."""
    known = {process.pid for process in psutil.Process().children(recursive=True)}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = await browser.new_page(viewport=DESKTOP)  # type: ignore[arg-type]
            if history is not None:
                await _bound_history(page, int(history * MIB))
            await page.goto(f"{address}/?backend={backend}")
            await page.wait_for_function("window.servescope.store?.connection.phase === 'open'")
            session: Any = await page.context.new_cdp_session(page)
            await session.send("Performance.enable")
            yield LivePage(page, session, _the_browser(known))
        finally:
            await browser.close()


async def _bound_history(page: Page, size: int) -> None:
    async def give(route: Route) -> None:
        response = await route.fetch()
        text, count = BUDGET.subn(f"const BUDGET = {size};", await response.text())
        assert count == 1, "history.js has no BUDGET to replace"
        await route.fulfill(response=response, body=text)

    await page.route("**/js/history.js*", give)


def _the_browser(known: set[int]) -> psutil.Process:
    """The process that all others of the browser descend from."""
    started = [p for p in psutil.Process().children(recursive=True) if p.pid not in known]
    return next(process for process in started if "chrom" in process.name())
