"""The API tab: calls that can be copied, frames as they come, the way of a token, the code."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from playwright.async_api import Page, Route, expect

from backends.code_view import engines, find
from tests.browser.conftest import OpenPage
from tests.browser.site import Complaints, Site

MOST_FRAMES = 400
"""As in assets/js/api/send_card.js."""


async def open_api(open_page: OpenPage, query: str = "", **options: object) -> Page:
    opened = await open_page(f"?tab=api{query}", **options)
    await expect(opened.page.locator("#api-root[data-settled=true]")).to_be_visible()
    return opened.page


async def send(page: Page, route: str, prompt: str = "Once upon a time", max_tokens: int = 20) -> None:
    await page.locator("#api-send-route").select_option(route)
    await page.locator("#api-prompt").fill(prompt)
    await page.locator("#api-max-tokens").fill(str(max_tokens))
    await page.locator("#api-send").click()


async def test_calls_carry_this_servers_address_and_the_chosen_engine(
    site: Site, open_page: OpenPage
) -> None:
    page = await open_api(open_page)
    call = page.locator("#api-call")
    await expect(call).to_contain_text(f"{site.url}generate_stream?backend=naive")
    await page.locator("#api-engine").select_option("generate")
    await expect(call).to_contain_text(f"{site.url}generate_stream?backend=generate")
    await page.locator("#api-route").select_option("chat_stream")
    await page.get_by_role("button", name="openai client").click()
    await expect(call).to_contain_text(f'base_url="{site.url}v1"')
    await expect(call).to_contain_text('model="generate"')
    await page.locator("#api-route").select_option("health")
    await expect(page.get_by_role("button", name="openai client")).to_be_disabled()
    await expect(call).to_have_text(f"curl '{site.url}health'")


async def test_nothing_can_be_sent_before_the_engines_are_known(open_page: OpenPage) -> None:
    page = (await open_page()).page
    may_answer = asyncio.Event()

    async def answer_late(route: Route) -> None:
        await may_answer.wait()
        await route.continue_()

    await page.route("**/health", answer_late)
    await page.locator("#page-tabs [data-tab=api]").click()
    for told in ("#api-status", "#api-journey-summary"):
        await expect(page.locator(told)).to_have_text("The server has not said yet which engines there are.")
    enabled = page.locator(":is(.api-card:first-child, #api-journey) :is(button, select):enabled")
    await expect(enabled).to_have_count(0)
    await expect(page.locator("#api-send")).to_be_disabled()
    may_answer.set()
    await expect(page.locator("#api-trace")).to_be_enabled()
    await expect(page.locator("#api-send")).to_be_enabled()
    await expect(page.locator("#api-status")).to_be_empty()


async def test_copy_puts_the_call_on_the_clipboard(open_page: OpenPage) -> None:
    page = await open_api(open_page, permissions=["clipboard-read", "clipboard-write"])
    await page.locator("#api-copy").click()
    await expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == await page.locator("#api-call").text_content()


async def test_every_route_the_server_has_is_listed(open_page: OpenPage) -> None:
    page = await open_api(open_page)
    schema = await page.evaluate("fetch('openapi.json').then(answer => answer.json())")
    await page.get_by_text("Every route of this server").click()
    rows = await page.locator(".api-routes tr").all_inner_texts()
    for path, methods in schema["paths"].items():
        for method in methods:
            assert any(row.split("\t")[:2] == [method.upper(), path] for row in rows), path


@pytest.mark.parametrize("route", ["generate_stream", "chat"])
async def test_frames_are_shown_as_they_came_with_their_line_ends(
    site: Site, open_page: OpenPage, route: str
) -> None:
    site.say("One <b>two</b> ${three}")
    page = await open_api(open_page)
    await send(page, route)
    await expect(page.locator("#api-status")).to_have_text(re.compile(r"HTTP 200, \d+ frames in"))
    frames = await page.locator("#api-frames li code").all_text_contents()
    assert all(frame.startswith("data: ") and frame.endswith("\\n\\n") for frame in frames)
    said = [
        json.loads(frame.removeprefix("data: ").removesuffix("\\n\\n"))
        for frame in frames
        if "[DONE]" not in frame
    ]
    if route == "generate_stream":
        assert "".join(part["token"] for part in said) == "One <b>two</b> ${three}"
    else:
        assert frames[-1] == "data: [DONE]\\n\\n"
        texts = [part["choices"][0]["delta"].get("content") or "" for part in said if part["choices"]]
        assert "".join(texts) == "One <b>two</b> ${three}"
    times = [float(text.removesuffix(" ms")) for text in await page.locator(".api-time").all_text_contents()]
    assert times == sorted(times)
    assert len(times) == len(frames)


async def test_stop_ends_the_request_in_the_engine(site: Site, open_page: OpenPage) -> None:
    page = await open_api(open_page)
    await send(page, "generate_stream", max_tokens=150)
    await expect(page.locator("#api-frames li")).not_to_have_count(0)
    await page.locator("#api-stop").click()
    await expect(page.locator("#api-status")).to_contain_text("Stopped after")
    await site.all_slots_are_free()
    await expect(page.locator("#api-send")).to_be_enabled()


async def test_a_refusal_is_shown_as_the_server_sent_it(open_page: OpenPage, complaints: Complaints) -> None:
    page = await open_api(open_page)
    await send(page, "generate_stream", max_tokens=100_000)
    await expect(page.locator("#api-status")).to_contain_text("HTTP 400")
    [shown] = await page.locator("#api-frames li code").all_text_contents()
    assert json.loads(shown)["error"]["field"] == "max_tokens"
    complaints.seen = [line for line in complaints.seen if "400" not in line]


async def test_only_the_last_frames_stay_and_all_are_counted(open_page: OpenPage) -> None:
    page = await open_api(open_page)
    many = MOST_FRAMES + 50

    async def answer(route: object) -> None:
        frames = "".join(f'data: {{"token": "{number}"}}\n\n' for number in range(many))
        await route.fulfill(status=200, content_type="text/event-stream", body=frames)

    await page.route("**/generate_stream*", answer)
    await send(page, "generate_stream")
    await expect(page.locator("#api-status")).to_contain_text(f"{many} frames")
    await expect(page.locator("#api-frames li")).to_have_count(MOST_FRAMES)
    await expect(page.locator("#api-frames li").last).to_contain_text(f'"token": "{many - 1}"')


async def test_a_token_is_followed_from_its_step_to_the_screen(site: Site, open_page: OpenPage) -> None:
    site.say("One two three")
    page = await open_api(open_page)
    await page.locator("#api-trace").click()
    await expect(page.locator("#api-status")).to_contain_text("3 frames")
    await expect(page.locator("#api-journey-summary")).to_contain_text("Token 2, from step")
    for place in ("worker", "thread", "event_loop", "own_queue", "sse"):
        await expect(page.locator(f"[data-place={place}] .api-hop")).to_have_text(
            re.compile(r"^\d+\.\d+ ms$")
        )
    await expect(page.locator("[data-place=result_queue]")).to_contain_text("not measured")
    await expect(page.locator("[data-place=screen]")).to_contain_text("against the first frame")
    frame = await page.locator("#api-frames li code").first.text_content()
    assert frame is not None
    trace = json.loads(frame.removeprefix("data: ").removesuffix("\\n\\n"))["trace"]
    await page.get_by_role("button", name="its way: token 0").click()
    await expect(page.locator("[data-place=screen]")).to_contain_text("the first: compared with")
    shown = await page.locator("[data-place=own_queue] .api-hop").text_content()
    assert shown == f"{(trace['taken'] - trace['queued']) * 1000:.2f} ms"


async def test_the_code_view_shows_real_counts_and_the_source_of_what_is_chosen(open_page: OpenPage) -> None:
    page = await open_api(open_page)
    for engine in await asyncio.to_thread(engines):
        button = page.locator(f".api-count[data-engine={engine.engine}]")
        await expect(button).to_contain_text(f"{engine.code_lines:,} lines")
        await expect(button).to_contain_text(f"{engine.total_lines:,} with blank lines")
    await page.locator(".api-count[data-engine=paged]").click()
    await page.locator("[data-path='backends/paged/block_pool.py']").click()
    await page.locator("#api-symbol").select_option("backends/paged/block_pool.py::BlockPool")
    found = await asyncio.to_thread(find, "backends/paged/block_pool.py::BlockPool")
    await expect(page.locator("#api-source")).to_have_attribute(
        "data-symbol", "backends/paged/block_pool.py::BlockPool"
    )
    assert await page.locator("#api-source").text_content() == found.source
    await expect(page.locator("#api-code-path")).to_contain_text(f"lines {found.first_line} to")
