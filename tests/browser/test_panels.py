"""The transport and the panels in a real browser, over an engine whose every step is known."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from playwright.async_api import Page, Route, WebSocketRoute, expect
from pytest_asyncio import fixture

from backends.base import ControlAction
from tests.browser.conftest import OpenPage
from tests.browser.site import ChatPage, Complaints, Site
from tests.fakes import FakeBackend

SLOW = 0.2
"""Seconds a step, so that an answer does not end before the browser has looked at it."""
ENGINE_STATE = "window.servescope.store.engines.get('naive')?.state"
LAST_STEP = "window.servescope.store.history.last"
SHOWN = "window.servescope.store.shown"
STEP_OF_LAST = f"window.servescope.store.history.column({LAST_STEP})?.step.step_id"
STEP_SHOWN = (
    f"'step ' + window.servescope.store.history.column({SHOWN}).step.step_id.toLocaleString('en') + ' of'"
)


@fixture(autouse=True, loop_scope="session")
async def running(site: Site) -> AsyncIterator[None]:
    """The engine runs at full speed before and after each test, and every page is told."""
    yield
    await site.naive.control(ControlAction.RESUME)
    await site.naive.control(ControlAction.SPEED, 0)


async def paused_after_a_few_steps(site: Site, page: Page, chat: ChatPage) -> None:
    """An answer under way, held between two steps, and on the screen."""
    site.naive.step_seconds = SLOW
    await chat.ask("one two three")
    start = await page.evaluate(LAST_STEP)
    await page.wait_for_function(f"{LAST_STEP} >= {start} + 5")
    await page.locator("[data-action=pause]").click()
    await page.wait_for_function(f"{ENGINE_STATE} === 'paused'")
    await settled(site, page)


def last_recorded(engine: FakeBackend) -> int | None:
    """Id of the last step in the record; ``None`` while one is under way."""
    with engine._changed:
        return None if engine._in_step else engine.recorder.head().snapshot.next_step_id - 1


async def settled(site: Site, page: Page) -> None:
    """Until no step is under way, and the page shows what the engine recorded."""
    await expect(page.locator("[data-action=step]")).to_be_enabled()
    latest = last_recorded(site.naive)
    while latest is None:
        await asyncio.sleep(0.01)
        latest = last_recorded(site.naive)
    await page.wait_for_function(f"{STEP_OF_LAST} === {latest}")
    await page.wait_for_function(
        f"document.querySelector('.scope-position').textContent.includes({STEP_SHOWN})"
    )


async def headline(page: Page, panel: str) -> str:
    return await page.locator(f"#panel-{panel} .scope-headline").inner_text()


async def test_one_press_of_step_adds_one_column_that_is_one_token_wider(site: Site, page: ChatPage) -> None:
    await paused_after_a_few_steps(site, page.page, page)
    shapes, steps = [await headline(page.page, "batch")], [await page.page.evaluate(LAST_STEP)]
    for _ in range(2):
        await page.page.locator("[data-action=step]").click()
        await page.page.wait_for_function(f"{LAST_STEP} === {steps[-1] + 1}")
        await settled(site, page.page)
        steps.append(await page.page.evaluate(LAST_STEP))
        shapes.append(await headline(page.page, "batch"))
    width = int(shapes[0].removeprefix("torch.Size([1, ").removesuffix("])"))
    assert shapes == [f"torch.Size([1, {width + more}])" for more in range(3)]
    await page.stop.click()


async def test_stop_frees_the_slot(site: Site, page: ChatPage) -> None:
    site.naive.step_seconds = SLOW
    running = page.page.locator("[data-stage=running] b")
    await page.ask("Hello")
    await expect(running).to_have_text("1 / 4")
    await page.stop.click()
    await expect(running).to_have_text("0 / 4")
    row = page.page.locator("#panel-latency tbody tr").first
    await expect(row).to_have_attribute("data-status", "abort")


async def test_history_can_be_looked_at_while_the_engine_is_held_and_live_returns(
    site: Site, page: ChatPage
) -> None:
    await paused_after_a_few_steps(site, page.page, page)
    latest = await headline(page.page, "batch")
    slider = page.page.locator(".scope-slider")
    await slider.focus()
    await slider.press("ArrowLeft")
    await slider.press("ArrowLeft")
    await settled(site, page.page)
    assert await page.page.evaluate(f"{LAST_STEP} - {SHOWN}") == 2
    earlier = await headline(page.page, "batch")
    assert earlier != latest
    await expect(page.page).to_have_url(re.compile("step="))
    await page.page.locator(".scope-live").click()
    await settled(site, page.page)
    assert await headline(page.page, "batch") == latest
    await expect(page.page).to_have_url(re.compile(r"^[^?]*(\?(?!.*step=).*)?$"))
    await page.stop.click()


async def test_a_link_to_a_step_opens_at_that_step(site: Site, page: ChatPage, open_page: OpenPage) -> None:
    await paused_after_a_few_steps(site, page.page, page)
    step = await page.page.evaluate("window.servescope.store.history.column(2).step.step_id")
    linked = await open_page(f"?step={step}")
    await expect(linked.page.locator(".scope-position")).to_contain_text(f"step {step:,} of")
    assert await linked.page.evaluate("window.servescope.store.isLive") is False
    await page.stop.click()


async def test_pointing_at_a_request_lights_it_up_in_every_panel(site: Site, page: ChatPage) -> None:
    await paused_after_a_few_steps(site, page.page, page)
    row = page.page.locator("#panel-latency tbody tr").first
    box = await page.page.locator("#panel-queues canvas").bounding_box()
    assert box is not None
    canvas = page.page.locator("#panel-queues canvas")
    rows = await page.page.locator("#panel-latency tbody tr").count()
    await canvas.hover(position={"x": box["width"] / 2, "y": min(22, (box["height"] - 17) / rows) / 2})
    tooltip = page.page.locator(".scope-tooltip")
    await expect(tooltip).to_be_visible()
    lit = await page.page.evaluate("window.servescope.store.lit")
    assert lit is not None
    await expect(tooltip).to_contain_text(lit)
    await expect(page.page.locator("#panel-latency tr[data-lit=true]")).to_have_count(1)
    await page.page.mouse.move(5, 5)
    await expect(tooltip).to_be_hidden()
    await row.locator("button").click()
    await expect(row.locator("button")).to_have_attribute("aria-pressed", "true")
    await page.stop.click()


async def test_controls_that_make_no_sense_now_are_off_and_say_why(page: ChatPage) -> None:
    step = page.page.locator("[data-action=step]")
    await page.page.wait_for_function(f"{ENGINE_STATE} === 'ready'")
    await expect(step).to_be_disabled()
    await expect(step).to_have_attribute("title", "Pause the engine first, then step")


async def test_a_step_with_nothing_to_compute_is_refused_in_words(
    page: ChatPage, complaints: Complaints
) -> None:
    await page.page.wait_for_function(f"{ENGINE_STATE} === 'ready'")
    await page.page.locator("[data-action=pause]").click()
    await page.page.locator("[data-action=step]").click()
    await expect(page.page.locator(".scope-status-text")).to_contain_text("Nothing to step")
    await page.page.locator("[data-action=pause]").click()
    await expect(page.page.locator(".scope-status-text")).to_contain_text("naive is ready")
    complaints.seen.clear()  # the browser notes every 409


async def test_slow_motion_is_set_and_shown_to_everyone(
    site: Site, page: ChatPage, open_page: OpenPage
) -> None:
    other = await open_page()
    await page.page.locator("[data-action=speed]").select_option("0.25")
    await expect(other.page.locator("[data-action=speed]")).to_have_value("0.25")
    await page.page.locator("[data-action=speed]").select_option("0")
    await expect(other.page.locator("[data-action=speed]")).to_have_value("0")


async def test_a_lost_connection_is_said_and_comes_back_where_it_was(
    site: Site, page: ChatPage, complaints: Complaints
) -> None:
    sockets: list[WebSocketRoute] = []
    come_back = asyncio.Event()

    async def forward(socket: WebSocketRoute) -> None:
        if sockets:
            await come_back.wait()
        sockets.append(socket)
        socket.connect_to_server()

    await page.page.route_web_socket("**/telemetry*", forward)
    await page.page.reload()
    await page.page.wait_for_function("window.servescope.store?.connection.phase === 'open'")
    await paused_after_a_few_steps(site, page.page, page)
    steps = await page.page.evaluate(LAST_STEP)
    await sockets[0].close()
    await page.page.wait_for_function("window.servescope.store.connection.phase !== 'open'")
    assert await page.page.evaluate(LAST_STEP) == steps, "what was seen stays on the screen"
    come_back.set()
    await page.page.wait_for_function("window.servescope.store.connection.phase === 'open'")
    assert "since=" in sockets[-1].url
    await page.page.locator("[data-action=step]").click()
    await page.page.wait_for_function(f"{LAST_STEP} === {steps + 1}")
    complaints.seen.clear()  # the browser may note the loss
    await page.stop.click()


async def test_without_its_chart_the_latency_panel_still_has_its_table(
    site: Site, open_page: OpenPage, page: ChatPage, complaints: Complaints
) -> None:
    async def refuse(route: Route) -> None:
        await route.abort()

    await page.page.route("**/plotly.min.js", refuse)
    await page.page.reload()
    site.say("fine thanks")
    await page.ask("Hello")
    await page.answered()
    await expect(page.page.locator(".scope-chart-note")).to_be_visible()
    await expect(page.page.locator("#panel-latency tbody tr").first).to_contain_text("ms")
    complaints.seen.clear()


async def test_a_scope_that_is_taken_away_and_put_back_works_and_leaves_nothing_behind(
    site: Site, page: ChatPage
) -> None:
    await page.page.evaluate(
        """() => {
            const old = document.getElementById('scope');
            const host = old.parentElement;
            old.remove();
            host.append(Object.assign(document.createElement('div'), { id: 'scope' }));
        }"""
    )
    await expect(page.page.locator("#transport")).to_have_count(1)
    assert await page.page.locator(".scope-tooltip").count() == 1
    await paused_after_a_few_steps(site, page.page, page)
    assert (await headline(page.page, "batch")).startswith("torch.Size([1, ")
    await page.stop.click()


async def test_nothing_is_cut_off_and_the_page_does_not_scroll(open_page: OpenPage) -> None:
    for query in ("", "?view=panels&lang=ko&theme=dark"):
        page = await open_page(query)
        larger = await page.page.evaluate(
            """() => {
                const { scrollWidth, scrollHeight } = document.documentElement;
                return [scrollWidth - innerWidth, scrollHeight - innerHeight];
            }"""
        )
        assert larger == [0, 0]
        for panel in ("batch", "kv", "queues", "latency"):
            box = await page.page.locator(f"#panel-{panel}").bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900
            assert box["x"] + box["width"] <= 1440


async def test_on_a_phone_the_panels_stand_below_one_another(open_page: OpenPage) -> None:
    page = await open_page(viewport={"width": 390, "height": 844})
    boxes = [
        await page.page.locator(f"#panel-{panel}").bounding_box()
        for panel in ("batch", "kv", "queues", "latency")
    ]
    tops = [box["y"] for box in boxes if box is not None]
    assert tops == sorted(tops)
    assert len({round(box["x"]) for box in boxes if box is not None}) == 1
    assert await page.page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
