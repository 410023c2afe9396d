"""The choice of the engine, what it offers, and its bad days as the chat tells them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from backends.base import GenerationRequest, TokenChunk
from tests.browser.conftest import OpenPage
from tests.browser.site import SETTINGS, ChatPage, Site
from tests.fakes import FakeBackend

HOLD_FRAMES = """() => {
    const frame = window.requestAnimationFrame.bind(window);
    const held = [];
    window.requestAnimationFrame = (callback) => held.push(callback);
    window.letFramesGo = async () => {
        window.requestAnimationFrame = frame;
        held.splice(0).forEach((callback) => frame(callback));
        for (let frames = 0; frames < 10; frames += 1) await new Promise(frame);
    };
}"""
"""As on a page that is busy: nothing that waits for the next frame goes on."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[GenerationRequest]:
    """What engines are asked, from now on."""
    requests = []
    generate = FakeBackend.generate

    async def capture(self: FakeBackend, request: GenerationRequest) -> AsyncIterator[TokenChunk]:
        requests.append(request)
        async for chunk in generate(self, request):
            yield chunk

    monkeypatch.setattr(FakeBackend, "generate", capture)
    return requests


async def test_choosing_an_engine_describes_it_and_follows_its_feed(page: ChatPage) -> None:
    await expect(page.page.locator("#backend-about")).to_contain_text("no KV cache")
    await page.engine("generate").click()
    await expect(page.page.locator("#backend-about")).to_contain_text("model.generate()")
    await page.page.wait_for_function("window.servescope.store.backend === 'generate'")
    await page.page.wait_for_url("**/?backend=generate")


async def test_an_option_that_is_drawn_anew_has_its_state_though_the_engine_tells_nothing(
    page: ChatPage,
) -> None:
    option = page.engine("naive")
    await page.page.wait_for_function("window.servescope.store.engines.has('naive')")
    state = await page.page.evaluate("window.servescope.store.engines.get('naive').state")
    await expect(option).to_have_attribute("data-state", state)
    await option.evaluate(
        """(label) => {
            const anew = label.cloneNode(true);
            delete anew.dataset.state;
            label.replaceWith(anew);
        }"""
    )
    await expect(option).to_have_attribute("data-state", state)


async def test_an_engine_with_two_ways_to_run_lets_one_choose(
    site: Site, open_page: OpenPage, asked: list[GenerationRequest]
) -> None:
    site.say("fine")
    page = await open_page("?backend=generate")
    modes = page.page.locator("#backend-mode label")
    await expect(modes).to_have_text(["one at a time", "static batch"])
    await modes.nth(1).click()
    await page.ask("Hello")
    await page.answered()
    await page.engine("naive").click()
    await expect(modes).to_have_count(0)
    await page.ask("Hello")
    await page.answered()
    assert [(request.mode, request.source) for request in asked] == [("static", "chat"), (None, "chat")]


async def test_settings_reach_the_engine(
    site: Site, open_page: OpenPage, asked: list[GenerationRequest]
) -> None:
    site.say("fine")
    page = await open_page("?backend=generate")
    await page.open_settings()
    for name, value in (("temperature", "0.5"), ("max-tokens", "7"), ("top-p", "0.9"), ("top-k", "40")):
        await page.page.locator(f"#settings-{name} input[type=number]").fill(value)
        await page.page.locator(f"#settings-{name} input[type=number]").press("Tab")
    seed = page.page.locator("#settings-seed textarea, #settings-seed input")
    await seed.fill("11")
    await page.ask("Hello")
    await page.answered()
    await seed.fill("")
    await page.ask("Hello")
    await page.answered()
    await seed.fill("eleven")
    await page.ask("Hello")
    await page.answered()
    await expect(page.errors).to_contain_text("The seed is 'eleven'")
    sampling = asked[0].sampling
    assert [request.sampling.seed for request in asked] == [11, None]
    assert (sampling.temperature, sampling.max_tokens, sampling.top_p) == (0.5, 7, 0.9)
    assert (sampling.top_k, sampling.seed) == (40, 11)
    assert asked[0].visitor == await page.page.evaluate("window.servescope.visitor")


async def test_what_is_set_before_a_slow_page_draws_its_next_frame_stays(page: ChatPage) -> None:
    await page.page.evaluate(HOLD_FRAMES)
    await page.open_settings()
    await page.system_prompt.fill("Be brief.")
    await page.page.evaluate("letFramesGo()")
    await expect(page.system_prompt).to_have_value("Be brief.")


async def test_the_settings_close_again_and_keep_what_was_set(page: ChatPage) -> None:
    title = page.page.locator("#settings-title")
    await expect(title).to_have_attribute("aria-expanded", "false")
    await expect(page.system_prompt).to_be_hidden()
    await title.focus()
    await page.page.keyboard.press("Enter")
    await expect(title).to_have_attribute("aria-expanded", "true")
    await page.system_prompt.fill("Be brief.")
    await title.click()
    await expect(page.system_prompt).to_be_hidden()
    await page.open_settings()
    await expect(page.system_prompt).to_have_value("Be brief.")


async def test_a_setting_that_the_engine_does_not_honour_is_disabled_and_says_why(page: ChatPage) -> None:
    await page.open_settings()
    for name in ("top-p", "top-k", "seed"):
        setting = page.page.locator(f"#settings-{name}")
        await expect(setting).to_contain_text("naive does not support this")
        await expect(setting.locator("input, textarea").first).to_be_disabled()
    await page.engine("generate").click()
    for name in ("top-p", "top-k", "seed"):
        await expect(page.page.locator(f"#settings-{name}").locator("input, textarea").first).to_be_enabled()


async def test_more_tokens_than_the_operator_allows_cannot_be_set(page: ChatPage) -> None:
    await page.open_settings()
    most = page.page.locator("#settings-max-tokens input[type=range]")
    assert await most.get_attribute("max") == str(SETTINGS.max_tokens)


async def test_a_conversation_beyond_the_models_limit_is_refused_in_words_and_nothing_is_lost(
    site: Site, page: ChatPage
) -> None:
    site.say("fine")
    text = "word " * 300 + "end"
    await page.ask(text)
    await page.answered()
    await expect(page.errors).to_contain_text("No answer")
    await expect(page.errors).to_contain_text("200")
    await expect(page.questions).to_have_text(text)
    await page.ask("shorter")
    await page.answered()
    await expect(page.answers).to_have_text(["fine"])


async def test_an_empty_message_is_refused_once(site: Site, page: ChatPage) -> None:
    for _ in range(2):
        await page.input.fill("   ")
        await page.send.click()
        await expect(page.errors).to_have_count(1)
        await expect(page.errors.locator(".notice-error")).to_have_count(1)
    await expect(page.errors).to_contain_text("The message is empty")
    assert site.naive.num_in_flight == 0


async def test_an_engine_that_dies_says_so_and_answers_again(site: Site, page: ChatPage) -> None:
    await page.ask("Hello")
    await expect(page.answers).to_contain_text("word2")
    site.naive.die("The worker was killed by signal 9.")
    await page.answered()
    await expect(page.answers).to_contain_text("word2")
    await expect(page.errors).to_contain_text("The answer broke off")
    await expect(page.errors).to_contain_text("killed by signal 9")
    site.say("I am back")
    await page.ask("And now?")
    await page.answered()
    await expect(page.answers.last).to_have_text("I am back")


async def test_an_engine_that_starts_says_how_far_it_is_and_then_answers(
    site: Site, open_page: OpenPage
) -> None:
    site.engines["slow"].may_start.clear()
    site.say("at last")
    page = await open_page("?backend=slow")
    await page.ask("Hello")
    await expect(page.waiting).to_contain_text("slow is starting")
    await expect(page.waiting).to_contain_text("Loading the weights · 50%")
    site.engines["slow"].may_start.set()
    await page.answered()
    await expect(page.answers).to_have_text(["at last"])
    await expect(page.waiting).to_have_count(0)


async def test_a_paused_engine_says_what_to_press(site: Site, page: ChatPage) -> None:
    site.say("go on")
    await page.page.locator("#transport button").first.click()
    await page.page.wait_for_function("window.servescope.store.engines.get('naive').state === 'paused'")
    await page.ask("Hello")
    await expect(page.waiting).to_contain_text("paused")
    await page.page.locator("#transport button").first.click()
    await page.answered()
    await expect(page.answers).to_have_text(["go on"])


async def test_an_engine_that_cannot_run_here_says_why(open_page: OpenPage) -> None:
    page = await open_page("?backend=broken")
    await expect(page.page.locator("#backend-state")).to_contain_text("It needs a part")
    await page.ask("Hello")
    await page.answered()
    await expect(page.errors).to_contain_text("It needs a part that is not installed.")
    await expect(page.questions).to_have_text("Hello")
