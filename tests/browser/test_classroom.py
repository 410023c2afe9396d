"""The Classroom: a race from the form to the figures, its link, its files, its Stop."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.async_api import Page, expect

from backends.records import StepRecord
from tests.browser.conftest import OpenPage
from tests.browser.site import Site

RACE = "?tab=classroom&race=naive,generate:static,broken"
PATIENCE = 30_000
"""Milliseconds: a limit for what goes wrong."""


async def classroom(open_page: OpenPage, query: str = RACE, **options: object) -> Page:
    """A page whose form is ready."""
    page = (await open_page(query, **options)).page
    await page.locator(".classroom-engine").first.wait_for()
    return page


async def fill(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        await page.locator(f"#classroom-{name}").fill(value)


def fast(site: Site) -> None:
    for engine in site.engines.values():
        engine.step_seconds = 0.01


async def test_a_race_runs_from_one_click_to_lanes_and_figures(site: Site, open_page: OpenPage) -> None:
    fast(site)
    page = await classroom(open_page)
    await fill(page, students="5", output_tokens="4, 8")
    await page.get_by_role("button", name="Start the race").click()
    await expect(page.locator(".classroom-line")).to_have_text("Done.", timeout=PATIENCE)

    entries = page.locator(".classroom-entry")
    await expect(entries).to_have_count(3)
    await expect(entries.nth(0)).to_contain_text("finished after")
    await expect(entries.nth(1)).to_contain_text("generate · static batch")
    await expect(entries.nth(2)).to_contain_text("It needs a part that is not installed.")
    await expect(entries.nth(0).locator("canvas")).to_have_attribute("role", "img")
    await expect(entries.nth(0)).to_contain_text("5 of 5 requests complete")
    rows = page.locator(".classroom-table tbody tr")
    complete = rows.filter(has_text="Requests complete").locator("td")
    assert await complete.all_inner_texts() == ["5 / 5", "5 / 5", "–"]
    tokens = rows.filter(has_text="Output tokens").locator("td")
    assert await tokens.all_inner_texts() == ["28", "28", "–"]  # 4 + 8 + 4 + 8 + 4
    await expect(page.locator(".classroom-table [data-best]").first).to_contain_text("★")
    await rows.filter(has_text="KV waste").locator("th").focus()
    await expect(page.locator(".scope-tooltip:visible")).to_contain_text("Σ filled slots")


async def test_the_figures_on_the_screen_are_those_of_the_records(site: Site, open_page: OpenPage) -> None:
    fast(site)
    page = await classroom(open_page, "?tab=classroom&race=naive")
    await fill(page, students="3", output_tokens="6")
    version = site.naive.recorder.version
    await page.get_by_role("button", name="Start the race").click()
    await expect(page.locator(".classroom-line")).to_have_text("Done.", timeout=PATIENCE)

    records = [entry.record for entry in site.naive.recorder.since(version)]
    padding = sum(record.num_padding_tokens for record in records if isinstance(record, StepRecord))
    shown = page.locator(".classroom-table tr", has_text="Padding tokens").locator("td")
    assert await shown.inner_text() == f"{padding:,}"


async def test_stop_ends_the_race_and_frees_every_slot(site: Site, open_page: OpenPage) -> None:
    page = await classroom(open_page, f"{RACE}&together=1")
    await fill(page, students="4", output_tokens="100")
    await page.get_by_role("button", name="Start the race").click()
    await expect(page.locator(".classroom-entry").first).to_contain_text("0 of 4 ended")
    await expect(page.locator(".classroom-line")).to_have_text("Under way: all engines at once.")
    await page.get_by_role("button", name="Stop", exact=True).last.click()
    await expect(page.locator(".classroom-line")).to_contain_text("Stopped")
    await site.all_slots_are_free()
    await expect(page.get_by_role("button", name="Start the race")).to_be_focused()
    await expect(page.locator(".classroom-entry").nth(1)).to_contain_text("stopped")


async def test_a_race_of_a_page_that_is_closed_is_stopped(site: Site, open_page: OpenPage) -> None:
    page = await classroom(open_page)
    await fill(page, students="4", output_tokens="100")
    await page.get_by_role("button", name="Start the race").click()
    await expect(page.locator(".classroom-entry").first).to_contain_text("0 of 4 ended")
    assert site.naive.num_in_flight == 4
    await page.close()
    await site.all_slots_are_free()


async def test_the_address_repeats_the_workload(site: Site, open_page: OpenPage) -> None:
    page = await classroom(open_page)
    await fill(page, students="7", seed="42", output_tokens="3, 5")
    await page.locator(".classroom-choice", has_text="Poisson").click()
    await page.locator(".classroom-engine", has_text="broken").click()
    await page.get_by_label("All at once").check()
    query = page.url.partition("?")[2]
    again = await classroom(open_page, f"?{query}")

    await expect(again.locator("#classroom-students")).to_have_value("7")
    await expect(again.locator("#classroom-seed")).to_have_value("42")
    await expect(again.locator("#classroom-output_tokens")).to_have_value("3, 5")
    await expect(again.locator("input[value=poisson]")).to_be_checked()
    await expect(again.get_by_label("All at once")).to_be_checked()
    chosen = again.locator("[name=engine]:checked")
    assert await chosen.evaluate_all("inputs => inputs.map(input => input.value)") == [
        "naive",
        "generate:static",
    ]


async def test_a_workload_is_saved_to_a_file_and_loaded_from_it(
    site: Site, open_page: OpenPage, tmp_path: Path
) -> None:
    page = await classroom(open_page)
    await fill(page, students="9")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Save", exact=True).click()
    saved = tmp_path / "workload.json"
    await (await download.value).save_as(saved)
    assert json.loads(saved.read_text())["workload"]["students"] == 9

    await fill(page, students="2")
    await page.locator("#classroom-root input[type=file]").set_input_files(saved)
    await expect(page.locator("#classroom-students")).to_have_value("9")
    saved.write_text('{"workload": {"students": 900}}')
    await page.locator("#classroom-root input[type=file]").set_input_files(saved)
    await expect(page.locator("#classroom-students-problem")).to_contain_text("900")
    await expect(page.locator("#classroom-students")).to_have_value("9")


async def test_a_wrong_number_is_told_at_its_field_and_nothing_starts(
    site: Site, open_page: OpenPage
) -> None:
    page = await classroom(open_page)
    await fill(page, output_tokens="32, 9999")
    await page.get_by_role("button", name="Start the race").click()
    await expect(page.locator("#classroom-output_tokens-problem")).to_contain_text("9999")
    await expect(page.locator("#classroom-output_tokens")).to_be_focused()
    await expect(page.locator(".classroom-entry")).to_have_count(0)


async def test_a_server_on_loopback_says_how_phones_could_reach_it(open_page: OpenPage) -> None:
    page = await classroom(open_page)
    await expect(page.locator("#classroom-join")).to_contain_text("--host 0.0.0.0")
    await expect(page.locator(".classroom-qr")).to_be_hidden()


async def test_a_server_that_phones_can_reach_shows_them_a_code(open_page: OpenPage) -> None:
    page = (await open_page()).page
    told = {"loopback_only": False, "hosts": ["127.0.0.1"]}
    await page.route("**/join", lambda route: route.fulfill(json=told))
    await page.locator("[data-tab=classroom]").click()
    code = page.locator(".classroom-qr")
    await expect(code).to_be_visible()
    assert await code.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    link = await page.locator(".classroom-link").inner_text()
    assert link.startswith("http://127.0.0.1:")
    assert link.endswith("?tab=playground&view=chat")
