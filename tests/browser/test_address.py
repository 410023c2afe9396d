"""What the address of the page can ask for, and that it follows what is changed on the page."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.site import ChatPage, Complaints, Site

KOREAN_SEND = "보내기"


async def test_the_page_asks_nothing_of_another_host_and_complains_of_nothing(
    site: Site, page: ChatPage, complaints: Complaints
) -> None:
    site.say("fine")
    await page.ask("Hello")
    await page.answered()
    await page.engine("generate").click()
    await page.page.wait_for_function("window.servescope.store.backend === 'generate'")
    assert complaints.seen == []


async def test_the_document_has_a_title_a_heading_a_language_and_an_icon(page: ChatPage) -> None:
    assert await page.page.title() == "Servescope"
    await expect(page.page.locator("h1")).to_contain_text("Servescope")
    assert await page.page.locator("html").get_attribute("lang") == "en"
    icon = await page.page.locator("link[rel=icon]").evaluate(
        "link => fetch(link.href).then(icon => icon.ok)"
    )
    assert icon is True
    await expect(page.page.locator("footer")).to_have_count(0)


async def test_the_address_overrules_the_browsers_language(open_page: OpenPage) -> None:
    page = await open_page("?lang=ko")
    await expect(page.send).to_have_text(KOREAN_SEND)
    await expect(page.page.locator("#page-header")).to_contain_text("플레이그라운드")
    await expect(page.page.locator("#backend-about")).to_contain_text("KV 캐시가 없는")
    assert await page.page.locator("html").get_attribute("lang") == "ko"


async def test_a_korean_browser_gets_a_korean_page_unless_the_address_says_otherwise(
    open_page: OpenPage,
) -> None:
    korean = await open_page(locale="ko-KR")
    await expect(korean.send).to_have_text(KOREAN_SEND)
    english = await open_page("?lang=en", locale="ko-KR")
    await expect(english.send).to_have_text("Send")


async def test_the_operators_language_goes_before_the_browsers_but_not_before_the_address(
    site: Site, desktop: BrowserContext
) -> None:
    async def with_operators_choice(route: Route) -> None:
        response = await route.fetch()
        text = (await response.text()).replace('data-lang="auto"', 'data-lang="ko"')
        await route.fulfill(response=response, body=text)

    page = await desktop.new_page()
    await page.route(lambda url: url.split("?")[0] == site.url, with_operators_choice)
    for query, word in (("", KOREAN_SEND), ("?lang=en", "Send")):
        await page.goto(site.url + query)
        await expect(page.locator("#chat-send")).to_have_text(word)
    await page.close()


async def test_errors_are_told_in_the_pages_language(open_page: OpenPage) -> None:
    page = await open_page("?lang=ko")
    await page.input.fill(" ")
    await page.send.click()
    await expect(page.errors).to_contain_text("메시지가 비어 있습니다")


async def test_the_language_switch_keeps_the_rest_of_the_address(open_page: OpenPage) -> None:
    page = await open_page("?theme=dark")
    await page.page.get_by_role("link", name="한국어").click()
    await expect(page.send).to_have_text(KOREAN_SEND)
    assert "theme=dark" in page.page.url
    assert "lang=ko" in page.page.url


@pytest.mark.parametrize(("query", "theme"), [("?theme=light", "light"), ("?theme=dark", "dark")])
async def test_the_address_overrules_the_systems_theme(open_page: OpenPage, query: str, theme: str) -> None:
    page = await open_page(query, color_scheme="light" if theme == "dark" else "dark")
    await expect_theme(page, theme)


async def test_without_a_word_in_the_address_the_system_decides(open_page: OpenPage) -> None:
    await expect_theme(await open_page(color_scheme="dark"), "dark")


async def test_the_theme_switch_changes_everything_and_the_address(open_page: OpenPage) -> None:
    page = await open_page("?theme=light")
    await page.page.locator("#page-theme").click()
    await expect_theme(page, "dark")
    assert "theme=dark" in page.page.url
    await page.page.locator("#page-theme").click()
    await expect_theme(page, "light")


async def expect_theme(page: ChatPage, theme: str) -> None:
    """Ours and Gradio's, in step."""
    await page.page.wait_for_function(
        """theme => document.documentElement.dataset.theme === theme
            && document.body.classList.contains('dark') === (theme === 'dark')""",
        arg=theme,
    )


async def test_the_address_chooses_the_engine_for_chat_and_panels(site: Site, open_page: OpenPage) -> None:
    page = await open_page("?backend=generate")
    await expect(page.page.locator("#backend-choice input[value=generate]")).to_be_checked()
    await page.page.wait_for_function("window.servescope.store.backend === 'generate'")
    await page.ask("Hello")
    await expect(page.answers).to_contain_text("word1")
    assert site.generate.num_in_flight == 1
    await page.stop.click()
    await page.answered()


async def test_what_the_address_says_wrong_is_as_if_it_said_nothing(
    open_page: OpenPage, complaints: Complaints
) -> None:
    page = await open_page("?backend=nonsense&theme=pink&lang=xx&view=upside&tab=nowhere")
    await expect(page.page.locator("#backend-choice input[value=naive]")).to_be_checked()
    await expect(page.page.locator("#tab-playground")).to_be_visible()
    await expect(page.page.locator("#panel-batch")).to_be_visible()
    await expect(page.send).to_have_text("Send")
    complaints.seen.clear()


async def test_the_view_can_be_the_chat_alone(open_page: OpenPage) -> None:
    page = await open_page("?view=chat")
    await expect(page.input).to_be_visible()
    await expect(page.page.locator("#scope")).to_be_hidden()


async def test_the_view_can_be_the_panels_alone_over_the_whole_window(open_page: OpenPage) -> None:
    page = await open_page("?view=panels")
    await expect(page.input).to_be_hidden()
    await expect(page.page.locator("#page-header :is(nav, button)").first).to_be_hidden()
    box = await page.page.locator("#scope").bounding_box()
    assert box is not None
    assert box["width"] > 1380
    assert box["height"] > 860
