"""Every lesson on the page, with SmolLM2: what it shows is what the records of its run come to."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from pytest_asyncio import fixture

from tests.app_server import app_server
from tests.browser.conftest import DESKTOP
from tests.browser.site import Complaints
from tests.lesson_pictures import PICTURES, Bars
from tests.lesson_values import ALWAYS, VALUES, Trace

PATIENCE = 500_000
"""Milliseconds for an experiment, on a machine that is busy."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Two threads that wait for each other are slowed down the most by whatever else runs."""

pytestmark = pytest.mark.timeout(600)

SHARES = """rects => rects.map(rect =>
    Number(rect.getAttribute('height')) / rect.ownerSVGElement.viewBox.baseVal.height)"""
"""How high each part of a bar is, of the whole picture."""
SECONDS_IN = {"ms": 0.001, "s": 1.0}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    options = ("--backends", "naive,generate,paged", "--preload", "")
    with app_server(*options, **ONE_THREAD) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=PATIENCE / 1000) as client:
        yield client


@fixture(scope="module", loop_scope="session")
async def page(address: str, browser: Browser) -> AsyncIterator[Page]:
    complaints = Complaints(address)
    context = await browser.new_context(viewport=DESKTOP, locale="en-US")
    page = await context.new_page()
    complaints.listen(page)
    await page.goto(f"{address}/?tab=lessons")
    await expect(page.locator(".lessons-list li")).to_have_count(len(VALUES))
    yield page
    await context.close()
    assert complaints.seen == []


@pytest.mark.parametrize("slug", VALUES)
async def test_a_lesson_shows_what_its_records_come_to(slug: str, page: Page, client: httpx.Client) -> None:
    lesson = client.get(f"/lessons/{slug}").json()
    await page.locator(f".lessons-list button[data-slug={slug}]").click()
    await expect(page.locator(".lessons-text h2")).to_have_text(lesson["title"])
    await expect(page.locator(".lessons-result")).to_be_empty()
    await expect(page.locator(".lessons-sealed")).to_be_visible()

    outcome = await predict_and_run(page, lesson)
    traces = [Trace(client.get(link).raise_for_status().text) for link in await links_of(page)]
    assert [trace.header["backend"] for trace in traces] == outcome["engines"]
    assert all(trace.header["model"] == "SmolLM2-135M-Instruct" for trace in traces)
    more = [frames_of_the_same_call(client)] if slug == "sse-on-the-wire" else []
    recomputed = VALUES[slug](*traces, *more)

    assert {one["name"]: one["value"] for one in outcome["measured"]} == pytest.approx(recomputed)
    assert recomputed == {**recomputed, **ALWAYS.get(slug, {})}
    for name, value in recomputed.items():
        shown = await page.locator(f".lessons-result tr[data-name={name}] td").inner_text()
        if isinstance(value, str):
            assert shown == lesson["prediction"]["choices"][value]
        else:
            assert shows(shown, value), f"{name}: {shown} is {value}"
    await expect(page.locator(".lessons-result tbody tr")).to_have_count(len(recomputed))
    await expect(page.locator(".lessons-sealed")).to_have_count(0)
    if lesson["picture"] is None:
        assert slug not in PICTURES
    else:
        await the_picture_draws(PICTURES[slug](*traces, *more), outcome["picture"], page)


async def the_picture_draws(bars: Bars, told: dict[str, Any], page: Page) -> None:
    """Its bars are these, in what the server told and in what is drawn; the highest reaches the top."""
    assert [part for bar in told["bars"] for part in bar] == pytest.approx(
        [part for bar in bars for part in bar]
    )
    assert [len(bar) for bar in told["bars"]] == [len(bar) for bar in bars]
    top = max(sum(bar) if told["stacked"] else max(bar) for bar in bars)
    drawn = await page.locator(".lessons-picture rect").evaluate_all(SHARES)
    assert drawn == pytest.approx([part / top for bar in bars for part in bar])
    assert shows(await page.locator(".lessons-top").inner_text(), top)


async def predict_and_run(page: Page, lesson: dict[str, Any]) -> dict[str, Any]:
    """The outcome, as the server told the page."""
    if lesson["prediction"]["choices"]:
        await page.get_by_role("radio").first.check()
    else:
        await page.get_by_role("spinbutton").fill("7")
    async with page.expect_response(re.compile(f"/lessons/{lesson['slug']}/runs")) as response:
        await page.get_by_role("button", name="Run the experiment").click()
    over = page.locator(".lessons-verdict:not(:empty), .lessons-status[data-kind=error]")
    await expect(over).to_contain_text(re.compile("you said", re.IGNORECASE), timeout=PATIENCE)
    _, _, told = (await (await response.value).text()).partition("event: outcome\ndata: ")
    outcome: dict[str, Any] = json.loads(told)
    return outcome


async def links_of(page: Page) -> list[str]:
    links = await page.locator(".lessons-records a").all()
    return [str(await link.get_attribute("href")) for link in links]


def frames_of_the_same_call(client: httpx.Client) -> str:
    body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    return client.post("/generate_stream", json=body).raise_for_status().text


def shows(text: str, value: float) -> bool:
    """Is this the value, as far as the digits that are shown go?"""
    if minutes := re.fullmatch(r"(\d+) min (\d\d) s", text):
        return abs(int(minutes[1]) * 60 + int(minutes[2]) - value) <= 0.5
    number, unit = re.fullmatch(r"([\d,.]+)\s*(.*)", text).groups()  # type: ignore[union-attr]
    digits_after = len(number.partition(".")[2])
    scale = 0.01 if unit == "%" else SECONDS_IN.get(unit, 1.0)
    half_a_digit = 0.5 * 10**-digits_after * scale
    return abs(float(number.replace(",", "")) * scale - value) <= half_a_digit * (1 + 1e-6)
