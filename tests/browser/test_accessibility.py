"""That everybody can use every tab: by eye, by screen reader, by keyboard, in Korean, on a phone.

Two pages, one in English and light, one in Korean and dark, are used until every tab has content;
then each tab is looked at in every way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect
from pytest_asyncio import fixture

from backends.records import EngineConfig, Exposure, KVDelta, StepRecord, TraceHeader
from components.layout import TABS
from tests.browser.conftest import DESKTOP
from tests.browser.site import SETTINGS, ChatPage, Complaints, Script, serving
from tests.browser.test_appearance import FAINT, PHONE
from tests.fakes import FakeBackend

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = """async rules =>
    (await axe.run({ resultTypes: ['violations'], preload: false, rules: rules ?? {} })).violations
    .filter(({ impact }) => impact !== 'minor')
    .flatMap(({ id, nodes }) => nodes.map(({ target, html }) => `${id}: ${target} ${html.slice(0, 120)}`))"""

NOT_TOLD = """() => [...document.querySelectorAll('.tab:not([hidden]) :is(canvas, svg, img, [role=img])')]
    .filter(picture => picture.getClientRects().length && !picture.closest('[aria-hidden=true]'))
    .filter(picture => !picture.closest('button, summary, .plotly'))
    .filter(picture => {
        const told = document.getElementById(picture.getAttribute('aria-describedby'))?.textContent ?? '';
        const name = picture.getAttribute('aria-label') ?? picture.alt ?? '';
        const isPicture = picture.localName === 'img' || picture.getAttribute('role') === 'img';
        return !isPicture || (name + told).trim().length < 20 || (picture.matches('canvas') && told === '');
    }).map(picture => picture.outerHTML.slice(0, 200))"""
"""Pictures without a role, a name, and the same in words; a canvas's words stand beside it."""

CUT_OFF = """() => [...document.querySelectorAll('#page-header *, .tab:not([hidden]) *')]
    .filter(node => node.getClientRects().length)
    .filter(node => !node.closest('.sr-only, .scope-hidden, .bubble-wrap, pre, canvas, svg, .lessons-list'))
    .filter(node => ![...ancestors(node)].some(up => /auto|scroll/.test(getComputedStyle(up).overflowX)))
    .filter(node => {
        const box = node.getBoundingClientRect();
        return box.left < -1 || box.right > innerWidth + 1;
    }).map(node => node.outerHTML.slice(0, 120));
    function* ancestors(node) {
        for (let up = node.parentElement; up !== document.body; up = up.parentElement) yield up;
    }"""

CHARTS_FIT = """() => [...document.querySelectorAll('.tab:not([hidden]) .js-plotly-plot')]
    .filter(chart => chart.clientWidth)
    .every(chart => chart.querySelector('.svg-container').clientWidth === chart.clientWidth)"""
"""A chart is drawn anew up to a second after its place has become narrower."""

FOREIGN = """pattern => {
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!node.getClientRects().length || node.closest('body [lang], script, style, code, pre')) continue;
        if (node.closest('#chat-log, .classroom-status, .classroom-reason')) continue;
        for (const run of walker.currentNode.data.match(new RegExp(pattern, 'g')) ?? []) found.add(run);
    }
    return [...found];
}"""
"""Text in another language, outside of what is marked as such or as code, and of what a visitor or an
engine said."""
PATTERNS = {"ko": r"[A-Za-z][\w'-]*(?: +[A-Za-z][\w'-]*){2,}", "en": "[가-힣]+"}
"""Names and terms of one or two Latin words are Korean too."""


class Paged(FakeBackend):
    """Keeps blocks of four slots, and says which."""

    SIZE = 4

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tables: dict[str, list[int]] = {}
        self._free = list(range(24))

    def _header(self) -> TraceHeader:
        header = super()._header()
        engine = EngineConfig(max_model_len=96, block_size=self.SIZE, num_blocks=24, max_num_seqs=4)
        return msgspec.structs.replace(
            header, engine=engine, measured=header.measured | {"kv": Exposure.MEASURED}
        )

    def _step_record(self, *args: Any) -> StepRecord:
        record = super()._step_record(*args)
        given_back = {id: self._tables.pop(id) for id in record.finished_ids if id in self._tables}
        self._free += [block for blocks in given_back.values() for block in blocks]
        taken, filled = {}, {}
        for row in record.rows:
            if row.request_id in record.finished_ids:
                continue
            table = self._tables.setdefault(row.request_id, [])
            filled[row.request_id] = row.num_scheduled_tokens
            missing = -(-row.num_scheduled_tokens // self.SIZE) - len(table)
            taken[row.request_id] = [self._free.pop(0) for _ in range(missing)]
            table += taken[row.request_id]
        kv = KVDelta(num_free=len(self._free), taken=taken, given_back=given_back, filled_slots=filled)
        return msgspec.structs.replace(record, kv=kv)


@dataclass
class Used:
    """A page on which every tab has content."""

    page: Page
    lang: str

    async def tabs(self) -> AsyncIterator[str]:
        """Show one after another."""
        for tab in TABS:
            await self.show(tab.name)
            yield tab.name

    async def show(self, tab: str) -> None:
        await self.page.locator(f"#page-tabs [data-tab={tab}]").click()
        await expect(self.page.locator(f"#tab-{tab}")).to_be_visible()


@fixture(scope="module", loop_scope="session")
async def url() -> AsyncIterator[str]:
    script = Script()
    script.say("An answer of a few words.")
    engines = {
        "naive": FakeBackend("naive", settings=SETTINGS, script=script),
        "paged": Paged("paged", settings=SETTINGS, script=script),
        "broken": FakeBackend("broken", settings=SETTINGS, unavailable="It needs a part."),
    }
    async with serving(engines) as url:
        await engines["paged"].start()
        yield url


@fixture(
    scope="module", loop_scope="session", params=[("en", "light"), ("ko", "dark")], ids=["english", "korean"]
)
async def used(url: str, browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[Used]:
    lang, theme = request.param
    complaints = Complaints(url)
    context = await browser.new_context(viewport=DESKTOP, locale="en-US")
    page = await context.new_page()
    complaints.listen(page)
    what = "tab=playground&lesson=lines-of-code&race=naive,paged,broken&trace=paged-preemption"
    await page.goto(f"{url}?lang={lang}&theme={theme}&{what}")
    await page.locator("#chat-log .example").first.wait_for()
    await page.evaluate(AXE)
    used = Used(page, lang)
    await chat(page)
    uses = {"classroom": race, "lessons": predict, "sizing": calculate, "traces": replay, "api": send}
    for tab, use in uses.items():
        await used.show(tab)
        await use(page)
    yield used
    await context.close()
    assert complaints.seen == []


async def chat(page: Page) -> None:
    await ChatPage(page).fill()


async def race(page: Page) -> None:
    for field, value in {"students": "3", "output_tokens": "3, 5"}.items():
        await page.locator(f"#classroom-{field}").fill(value)
    await page.locator(".classroom-primary").click()
    await expect(page.locator(".classroom-table")).to_be_visible()
    await expect(page.locator(".classroom-stop")).to_be_hidden()


async def predict(page: Page) -> None:
    """The lesson whose experiment needs no model."""
    await page.locator("#lessons-root input").fill("300")
    await page.locator(".lessons-primary").click()
    await expect(page.locator(".lessons-verdict")).to_be_visible()
    await expect(page.locator(".lessons-code pre").first).to_be_visible()


async def calculate(page: Page) -> None:
    await expect(page.locator("#sizing-root[data-settled=true] .sizing-reported")).to_be_visible()


async def replay(page: Page) -> None:
    """A shipped recording with blocks, preemption and every panel."""
    await page.locator(".traces-item[aria-current]").wait_for()
    await page.locator("#replay-transport").wait_for()
    await page.locator("#replay .js-plotly-plot .main-svg").first.wait_for(state="attached")


async def send(page: Page) -> None:
    await expect(page.locator("#api-root[data-settled=true]")).to_be_visible()
    await page.locator("#api-trace").click()
    await expect(page.locator("#api-stop")).to_be_disabled()
    await page.locator(".api-routes summary").click()


async def test_axe_finds_nothing_on_any_tab(used: Used) -> None:
    found = {tab: await used.page.evaluate(SERIOUS) async for tab in used.tabs()}
    assert found == {tab.name: [] for tab in TABS}


async def test_axe_finds_nothing_where_the_panels_or_the_chat_stand_alone(used: Used) -> None:
    await used.show("playground")
    for view in ("panels", "chat", "full"):
        await used.page.evaluate("view => { document.documentElement.dataset.view = view; }", view)
        assert (view, await used.page.evaluate(SERIOUS)) == (view, [])


async def test_every_text_stands_out_from_what_is_behind_it(used: Used) -> None:
    found = {tab: await used.page.evaluate(FAINT) async for tab in used.tabs()}
    assert found == {tab.name: [] for tab in TABS}


async def test_every_picture_is_told_in_words_too(used: Used) -> None:
    pictures = "document.querySelectorAll('.tab:not([hidden]) :is(canvas, [role=img])').length"
    found, numbers = {}, {}
    async for tab in used.tabs():
        found[tab] = await used.page.evaluate(NOT_TOLD)
        numbers[tab] = await used.page.evaluate(pictures)
    assert found == {tab.name: [] for tab in TABS}
    assert numbers["playground"] >= 4
    assert numbers["classroom"] >= 2
    assert numbers["lessons"] >= 1
    assert numbers["traces"] >= 4


async def test_a_page_speaks_one_language_and_marks_what_is_in_another(used: Used) -> None:
    pattern = PATTERNS[used.lang]
    found = {tab: await used.page.evaluate(FOREIGN, pattern) async for tab in used.tabs()}
    assert found == {tab.name: [] for tab in TABS}


async def test_on_a_phone_nothing_is_cut_off_and_axe_finds_nothing(used: Used) -> None:
    await used.page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    try:
        async for tab in used.tabs():
            await used.page.wait_for_function(CHARTS_FIT)
            assert (tab, await used.page.evaluate("document.documentElement.scrollWidth")) == (tab, 390)
            assert (tab, await used.page.evaluate(CUT_OFF)) == (tab, [])
            assert (tab, await used.page.evaluate(SERIOUS, {"color-contrast": {"enabled": False}})) == (
                tab,
                [],
            )
    finally:
        await used.page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
