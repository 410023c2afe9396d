"""Everything that a visitor does, done by keyboard alone; what has the focus is marked all the way."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import Page, Route, expect
from pytest_asyncio import fixture

from components.layout import TABS
from tests.browser.conftest import OpenPage
from tests.browser.site import Site

MOST_PRESSES = 150

FOCUS = """() => {
    const node = document.activeElement;
    const marked = [node, node.closest('label')].some(one => {
        if (one === null) return false;
        const { outlineStyle, boxShadow } = getComputedStyle(one);
        return outlineStyle !== 'none' || boxShadow !== 'none';
    });
    const { top, bottom } = node.getBoundingClientRect();
    const isSeen = bottom > 0 && top < innerHeight;
    const isNowhere = node === document.body;
    return { what: node.outerHTML.slice(0, 100), isNowhere, isMarked: marked && isSeen };
}"""


class Keyboard:
    """Hands that have no mouse."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def go_to(self, selector: str, key: str = "Tab") -> None:
        """Press Tab until it has the focus; every stop on the way must be seen."""
        for _ in range(MOST_PRESSES):
            await self.page.keyboard.press(key)
            focus = await self.page.evaluate(FOCUS)
            assert focus["isMarked"] or focus["isNowhere"], focus["what"]
            if await self.has_focus(selector):
                return
        raise AssertionError(f"{selector} is not reached by {key}")

    async def back_to(self, selector: str) -> None:
        await self.go_to(selector, "Shift+Tab")

    async def has_focus(self, selector: str) -> bool:
        return bool(await self.page.evaluate("it => document.activeElement.matches(it)", selector))

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def write(self, text: str) -> None:
        """Instead of what stands there."""
        await self.press("Control+a")
        await self.page.keyboard.type(text)

    async def open_tab(self, name: str) -> None:
        await self.back_to(f"#page-tabs [data-tab={name}]")
        await self.press("Enter")
        await expect(self.page.locator(f"#tab-{name}")).to_be_visible()


@fixture(loop_scope="session")
async def keyboard(open_page: OpenPage) -> Keyboard:
    page = await open_page("?race=naive&lesson=streaming")
    await page.page.wait_for_function("window.servescope.store.engines.has('naive')")
    return Keyboard(page.page)


async def test_a_chat_is_asked_held_stepped_looked_back_at_and_stopped(
    site: Site, keyboard: Keyboard
) -> None:
    page = keyboard.page
    step = page.locator("[data-action=step]")
    latest = "window.servescope.store.history.last"
    await keyboard.go_to("#backend-choice input")
    await keyboard.press("ArrowRight")
    await expect(page.locator("#backend-about")).to_contain_text("generate")
    await page.wait_for_function("document.activeElement.matches('#backend-choice input:checked')")
    await keyboard.press("ArrowLeft")
    await expect(page.locator("#backend-about")).to_contain_text("naive")

    await keyboard.go_to("#chat-input textarea")
    await page.keyboard.type("one two three")
    await keyboard.press("Enter")
    await page.wait_for_function(f"{latest} >= 3")
    await keyboard.go_to("[data-action=pause]")
    await keyboard.press("Space")
    await expect(step).to_be_enabled()
    await keyboard.go_to("[data-action=step]")
    for _ in range(2):
        steps = await page.evaluate(latest)
        await keyboard.press("Enter")
        await page.wait_for_function(f"{latest} === {steps + 1}")
        await expect(step).to_be_enabled()
        assert await keyboard.has_focus("[data-action=step]"), "it can be pressed again"

    await keyboard.go_to(".scope-slider")
    await keyboard.press("ArrowLeft", "ArrowLeft")
    await expect(page).to_have_url(re.compile("step="))
    await keyboard.go_to(".scope-live")
    await keyboard.press("Enter")
    await keyboard.go_to("#panel-batch canvas")
    await keyboard.press("ArrowDown")
    tooltip = page.locator(".scope-tooltip:visible")
    await expect(tooltip).to_contain_text("num_scheduled_tokens")
    await expect(page.locator("#panel-latency tr[data-lit=true]")).to_have_count(1)
    await keyboard.press("Escape")
    await expect(tooltip).to_have_count(0)

    await keyboard.back_to("[data-action=pause]")
    await keyboard.press("Space")
    await expect(page.locator(".scope-status-text")).to_contain_text("is ready")
    await keyboard.back_to("#chat-stop")
    await keyboard.press("Enter")
    await site.all_slots_are_free()
    await expect(page.locator("#chat-stop")).to_be_disabled()
    await expect(page.locator("#chat-input textarea")).to_be_focused()


async def test_a_race_is_set_up_and_read(site: Site, keyboard: Keyboard) -> None:
    page = keyboard.page
    site.naive.step_seconds = site.generate.step_seconds = 0.01
    await keyboard.open_tab("classroom")
    await keyboard.go_to("#classroom-students")
    await keyboard.write("2")
    await keyboard.go_to("input[name=arrivals]:checked")
    await keyboard.press("ArrowRight", "ArrowLeft")
    await keyboard.go_to("#classroom-output_tokens")
    await keyboard.write("2")
    await keyboard.go_to("input[name=engine]:not(:checked)")
    await keyboard.press("Space")
    await keyboard.go_to("#classroom-race [type=submit]")
    await keyboard.press("Enter")
    await expect(page.locator(".classroom-line")).to_have_text("Done.")
    await expect(page.locator(".classroom-entry")).to_have_count(2)
    assert await keyboard.has_focus("#classroom-race [type=submit]"), "the race can be started again"
    await keyboard.go_to(".classroom-lanes canvas")
    await keyboard.press("ArrowDown", "ArrowDown")
    tooltip = page.locator(".scope-tooltip:visible")
    await expect(tooltip).to_contain_text("student 2")
    await keyboard.press("Escape")
    await expect(tooltip).to_have_count(0)
    await keyboard.go_to(".classroom-table th[tabindex]")
    await expect(tooltip).to_be_visible()


async def test_a_lesson_is_chosen_predicted_and_run_a_size_changed_and_a_call_copied(
    keyboard: Keyboard,
) -> None:
    page = keyboard.page
    await keyboard.open_tab("lessons")
    await page.locator(".lessons-lesson").wait_for()
    await keyboard.go_to("[data-slug=lines-of-code]")
    await keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="303 lines")).to_be_focused()
    verdict = page.locator(".lessons-verdict")
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/lessons/lines-of-code/runs", held.put)
    await expect(verdict).to_have_role("status")
    await expect(verdict).to_be_empty()
    await keyboard.go_to("#lessons-root input")
    await page.keyboard.type("300")
    run, stop = (page.locator(f".lessons-actions button:nth-of-type({place})") for place in (1, 2))
    await keyboard.press("Enter")
    await expect(stop).to_be_focused()
    await keyboard.press("Enter")
    await expect(run).to_be_focused()
    await expect(page.locator(".lessons-status")).to_have_text("Stopped. Nothing was measured.")
    await keyboard.press("Enter")
    await expect(stop).to_be_focused()
    await held.get()  # the stopped one: Chromium would send it all the same
    await (await held.get()).continue_()
    await expect(verdict).to_contain_text("You said 300 lines")
    await expect(run).to_be_focused()
    await keyboard.go_to(".lessons-turns button:last-child")
    await keyboard.press("Enter")
    await expect(page.locator("#lessons-root h2", has_text="an engine that batches")).to_be_focused()

    await keyboard.open_tab("sizing")
    await page.locator("#sizing-root[data-settled=true]").wait_for()
    await keyboard.go_to("#sizing-gpu_memory_utilization")
    await keyboard.write("0.5")
    await expect(page.locator(".sizing-verdict")).to_have_attribute("data-starts", "true")

    await keyboard.open_tab("api")
    await page.locator("#api-root[data-settled=true]").wait_for()
    await page.context.grant_permissions(["clipboard-write"])
    await keyboard.go_to("#api-copy")
    await keyboard.press("Enter")
    await expect(page.locator("#api-copy + [role=status]")).not_to_be_empty()


async def test_every_tab_is_walked_through_to_its_end_and_nothing_holds_the_focus(keyboard: Keyboard) -> None:
    page = keyboard.page
    for tab in TABS:
        await page.locator(f"#page-tabs [data-tab={tab.name}]").click()
        await page.locator(f"#tab-{tab.name} :is(button, input, select)").first.wait_for()
        await keyboard.go_to("body")
