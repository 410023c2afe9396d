"""The Lessons tab: predict, run the real thing, read what was measured."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from backends.lessons.lesson import read_lesson, slugs
from tests.browser.conftest import OpenPage
from tests.browser.site import Complaints

pytestmark = pytest.mark.timeout(400)


async def lessons(open_page: OpenPage, query: str, **options: object) -> Page:
    page = (await open_page(f"?tab=lessons&lesson={query}", **options)).page
    await expect(page.locator(".lessons-code pre").first).to_be_visible()
    return page


async def predict(page: Page, number: int) -> None:
    await page.get_by_role("spinbutton").fill(str(number))


async def test_a_visitor_predicts_runs_and_reads_what_it_means(open_page: OpenPage) -> None:
    page = await lessons(open_page, "why-so-much-memory")
    run = page.get_by_role("button", name="Run the experiment")
    await expect(run).to_be_disabled()
    await expect(page.locator(".lessons-result")).to_be_empty()
    await expect(page.locator(".lessons-after")).not_to_contain_text("reserves")

    await predict(page, 7)
    await run.click()
    await expect(page.locator(".lessons-verdict")).to_have_text(
        "You said 7 GiB, it was 21.6 GiB. That is 3.1× as much as you said."
    )
    await expect(page.locator("tr[data-name=per_token] small")).to_contain_text("derived")
    await expect(page.locator(".lessons-picture svg rect")).to_have_count(4)
    await expect(page.locator(".lessons-after")).to_contain_text("reserves a share of the whole card")
    await expect(page.locator(".lessons-records")).to_have_count(0)
    done = page.locator("[data-slug=why-so-much-memory]").get_by_role("img", name="done")
    await expect(done).to_be_visible()

    await page.reload()
    await expect(done).to_be_visible()
    await expect(page.locator(".lessons-result")).to_be_empty()


async def test_what_a_run_shows_can_be_read_without_one(open_page: OpenPage) -> None:
    page = await lessons(open_page, "running-out")
    await page.get_by_role("button", name="Read it now").click()
    await expect(page.locator(".lessons-after h3")).to_be_focused()
    await expect(page.locator(".lessons-after")).to_contain_text("when C falls to zero")


async def test_a_run_is_stopped_by_its_button_and_can_begin_anew(open_page: OpenPage) -> None:
    page = await lessons(open_page, "padding")
    await predict(page, 7)
    run = page.get_by_role("button", name="Run the experiment")
    for _ in range(2):
        await run.click()
        await expect(page.locator(".lessons-status")).to_contain_text("starting")  # the run has its name
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".lessons-status")).to_have_text("Stopped. Nothing was measured.")
        await expect(run).to_be_focused()
        await expect(page.locator(".lessons-result")).to_be_empty()


async def test_an_experiment_whose_engine_is_not_there_says_so_and_offers_a_recording(
    open_page: OpenPage,
) -> None:
    page = await lessons(open_page, "running-out")
    await expect(page.locator(".lessons-status")).to_contain_text("It needs the engine paged")
    await predict(page, 44)
    await expect(page.get_by_role("button", name="Run the experiment")).to_be_disabled()

    recording = page.locator(".lessons-recordings")
    await expect(recording).to_contain_text("GiB")
    await recording.get_by_role("link", name="Running out of blocks").click()
    await expect(page.locator(".traces-badge")).to_have_text("Recording")
    await expect(page.locator(".traces-what h2")).to_contain_text("Running out of blocks")
    await expect(page.locator(".traces-facts")).to_contain_text("GiB")


async def test_the_list_leads_from_lesson_to_lesson_and_the_address_follows(open_page: OpenPage) -> None:
    page = await lessons(open_page, slugs()[0])
    await expect(page.locator(".lessons-list li")).to_have_count(len(slugs()))
    first, second = (read_lesson(slug, "en") for slug in slugs()[:2])

    await page.get_by_role("button", name=f"{second.title} →").click()
    await expect(page.get_by_role("heading", name=second.title)).to_be_visible()
    await expect(page).to_have_url(re.compile(f"lesson={second.slug}"))
    await page.get_by_role("button", name=f"← {first.title}").click()
    await expect(page.get_by_role("heading", name=first.title)).to_be_visible()


async def test_the_lesson_chosen_last_is_shown_however_late_another_one_comes(open_page: OpenPage) -> None:
    page = await lessons(open_page, "no-cache")
    may_come, has_come = asyncio.Event(), asyncio.Event()

    async def come_late(route: Route) -> None:
        response = await route.fetch()
        await may_come.wait()
        await route.fulfill(response=response)
        has_come.set()

    await page.route("**/lessons/streaming*", come_late)
    await page.locator(".lessons-list button[data-slug=streaming]").click()
    await page.locator(".lessons-list button[data-slug=padding]").click()
    chosen = page.get_by_role("heading", name=read_lesson("padding", "en").title, exact=True)
    await expect(chosen).to_be_visible()
    await page.get_by_role("spinbutton").fill("7")
    may_come.set()
    await has_come.wait()
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(chosen).to_be_visible()
    await expect(page.get_by_role("spinbutton")).to_have_value("7")


async def test_a_lesson_that_is_chosen_while_it_is_shown_keeps_its_prediction_and_its_run(
    open_page: OpenPage,
) -> None:
    page = await lessons(open_page, "padding")
    shown = page.locator(".lessons-list button[data-slug=padding]")
    await predict(page, 7)
    await shown.click()
    await expect(page.locator(".lessons-text h2")).to_be_focused()
    await expect(page.get_by_role("spinbutton")).to_have_value("7")

    await page.get_by_role("button", name="Run the experiment").click()
    await expect(page.locator(".lessons-status")).to_contain_text("starting")
    await shown.click()
    await expect(page.locator(".lessons-text h2")).to_be_focused()
    await expect(page.locator(".lessons-status")).to_contain_text("starting")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".lessons-status")).to_have_text("Stopped. Nothing was measured.")


async def test_a_prediction_is_still_there_when_one_comes_back_to_its_lesson(open_page: OpenPage) -> None:
    page = await lessons(open_page, "padding")
    await predict(page, 7)
    await page.locator(".lessons-list button[data-slug=no-cache]").click()
    other = page.get_by_role("heading", name=read_lesson("no-cache", "en").title, exact=True)
    await expect(other).to_be_visible()
    await page.locator(".lessons-list button[data-slug=padding]").click()
    await expect(other).to_be_hidden()
    await expect(page.get_by_role("spinbutton")).to_have_value("7")
    await expect(page.get_by_role("button", name="Run the experiment")).to_be_enabled()


async def test_the_code_beside_the_text_has_the_numbers_of_its_lines(open_page: OpenPage) -> None:
    page = await lessons(open_page, "shape-of-a-batch")
    code = page.locator(".lessons-code pre").first
    await expect(code).to_contain_text("def generate_forward_batch")
    number = await code.evaluate("pre => Number(pre.style.counterReset.split(' ')[1]) + 1")
    source = read_source("backends/naive/model_worker.py")
    shown = (await code.locator("span").first.inner_text()).strip()
    assert source[number - 1].strip() == shown


def read_source(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


async def test_a_lesson_fits_the_width_of_a_projector(open_page: OpenPage) -> None:
    projector = {"width": 1280, "height": 720}
    page = await lessons(open_page, "reserving-against-blocks&lang=ko", viewport=projector)
    assert await page.evaluate("document.documentElement.scrollWidth") == projector["width"]
    too_wide = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).map(box => box.innerText)"
    assert await page.locator("#lessons-root pre").evaluate_all(too_wide) == [], "code goes on below"


async def test_a_server_that_is_away_is_said_and_can_be_asked_again(
    open_page: OpenPage, complaints: Complaints
) -> None:
    page = await lessons(open_page, "padding")
    await page.route("**/lessons/streaming*", lambda route: route.abort())
    await page.locator(".lessons-list button", has_text="Streaming").click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    await page.unroute("**/lessons/streaming*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".lessons-text h2")).to_be_visible()
    complaints.seen.clear()
