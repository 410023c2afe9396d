"""A conversation: asking, stopping, trying again, and what is shown of it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.site import ChatPage, Site


async def test_enter_sends_and_the_answer_grows_to_its_end(site: Site, page: ChatPage) -> None:
    site.say("one two three four five six seven eight nine ten")
    site.naive.gate.pause()
    await page.ask("Count")
    await expect(page.questions).to_have_text("Count")
    await expect(page.input).to_have_value("")
    for words in ("one", "one two", "one two three"):
        site.naive.gate.step()
        await expect(page.answers).to_have_text(words)
    site.naive.gate.resume()
    await page.answered()
    await expect(page.answers).to_have_text("one two three four five six seven eight nine ten")


async def test_shift_and_enter_makes_a_new_line(site: Site, page: ChatPage) -> None:
    site.say("fine")
    await page.input.fill("first")
    await page.input.press("Shift+Enter")
    await page.input.press_sequentially("second")
    await expect(page.questions).to_have_count(0)
    await page.send.click()
    await page.answered()
    assert await page.questions.inner_text() == "first\nsecond"


async def test_enter_that_ends_a_syllable_does_not_send(page: ChatPage) -> None:
    await page.input.fill("안녕")
    await page.input.evaluate(
        """area => area.dispatchEvent(new KeyboardEvent(
            'keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))"""
    )
    await page.page.evaluate("new Promise(resolve => setTimeout(resolve))")
    await expect(page.input).to_have_value("안녕")
    await expect(page.questions).to_have_count(0)


async def test_the_model_is_given_the_whole_conversation(
    site: Site, page: ChatPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    render_chat = site.naive.render_chat

    async def capture(messages: list[dict[str, str]]) -> str:
        given.append(messages)
        return await render_chat(messages)

    monkeypatch.setattr(site.naive, "render_chat", capture)
    await page.open_settings()
    await page.system_prompt.fill("Be <brief>.")
    site.say("a < b")
    await page.ask("first & foremost")
    await page.answered()
    await page.ask("second")
    await page.answered()
    assert given[-1] == [
        {"role": "system", "content": "Be <brief>."},
        {"role": "user", "content": "first & foremost"},
        {"role": "assistant", "content": "a < b"},
        {"role": "user", "content": "second"},
    ]


async def test_stop_keeps_what_came_and_frees_the_slot(site: Site, page: ChatPage) -> None:
    await page.ask("Go on for ever")
    await expect(page.answers).to_contain_text("word3")
    await page.stop.click()
    await page.answered()
    await expect(page.stop).to_be_disabled()
    await site.all_slots_are_free()
    text = await page.answers.inner_text()
    await page.ask("And again")
    await expect(page.answers.nth(1)).to_contain_text("word1")
    assert await page.answers.nth(0).inner_text() == text
    await page.stop.click()
    await page.answered()


async def test_a_screen_reader_waits_for_the_whole_answer(site: Site, page: ChatPage) -> None:
    log = page.page.get_by_role("log")
    await page.ask("Hello")
    await expect(log).to_have_attribute("aria-busy", "true")
    await page.stop.click()
    await expect(log).to_have_attribute("aria-busy", "false")


async def test_stop_before_the_first_token_says_so(site: Site, page: ChatPage) -> None:
    site.naive.gate.pause()
    await page.ask("Hello")
    await expect(page.page.locator("#chat-stop")).to_be_enabled()
    await page.stop.click()
    await expect(page.stopped).to_contain_text("Stopped before the first token")
    await site.all_slots_are_free()


async def test_a_second_question_waits_in_the_input(site: Site, page: ChatPage) -> None:
    await page.ask("first")
    await expect(page.answers).to_contain_text("word1")
    await page.input.fill("second")
    await page.input.press("Enter")
    await expect(page.answers).to_contain_text("word6")
    await expect(page.input).to_have_value("second")
    await expect(page.questions).to_have_count(1)
    await page.stop.click()
    await page.answered()


async def test_retry_asks_the_last_question_again(site: Site, page: ChatPage) -> None:
    site.say("old")
    await page.ask("Hello")
    await page.answered()
    site.say("new")
    await page.log.get_by_role("button", name="Retry").click()
    await expect(page.answers).to_have_text("new")
    await expect(page.questions).to_have_text("Hello")


async def test_an_edited_question_replaces_all_that_followed(site: Site, page: ChatPage) -> None:
    site.say("answer")
    for question in ("a <b>bold</b> & brave one", "second"):
        await page.ask(question)
        await page.answered()
    await page.log.get_by_role("button", name="Edit").first.click()
    area = page.page.locator("#chat-log textarea")
    await expect(area).to_have_value("a <b>bold</b> & brave one")
    await area.fill("<i>other</i> &lt; one")
    site.say("edited")
    await page.log.get_by_role("button", name="Submit").click()
    await expect(page.answers).to_have_text(["edited"])
    await expect(page.questions).to_have_text(["<i>other</i> &lt; one"])


async def test_clear_ends_the_answer_and_nothing_comes_back(site: Site, page: ChatPage) -> None:
    await page.ask("Go on for ever")
    await expect(page.answers).to_contain_text("word2")
    await page.log.get_by_role("button", name="Clear").click()
    await page.answered()
    await site.all_slots_are_free()
    await expect(page.log.locator(".message")).to_have_count(0)
    await expect(page.log.locator(".example")).to_have_count(3)


async def test_an_example_is_asked_as_it_stands(site: Site, page: ChatPage) -> None:
    site.say("fine")
    example = page.log.locator(".example").first
    text = await example.inner_text()
    await example.click()
    await page.answered()
    await expect(page.questions).to_have_text(text.strip())


HOSTILE = [
    "<img src=x onerror=\"document.title='hacked'\">",
    "<script>document.title='hacked'</script>",
    "{{1+1}} ${1+1} {{constructor.constructor('document.title=1')()}}",
    "**bold** _it_ `code` # head [a](javascript:alert(1))",
    "&lt;b&gt; &amp; &nbsp; <!-- gone? --> <unknown-tag>",
    "$$\\frac{1}{2}$$ <svg onload=alert(1)>",
    "    indented\n\n\ttab  two  spaces",
]


async def test_what_is_written_is_shown_letter_by_letter(site: Site, page: ChatPage) -> None:
    for text in HOSTILE:
        site.say(text)
        await page.ask(text)
        await page.answered()
        for said in (page.questions.last, page.answers.last):
            assert await said.evaluate("node => node.textContent") == text
            assert await said.evaluate("node => node.childElementCount") == 0
    assert await page.page.title() == "Servescope"


async def test_a_long_conversation_stays_at_its_end_until_someone_scrolls_up(
    site: Site, page: ChatPage
) -> None:
    site.say(" ".join(f"word{number}" for number in range(120)))
    log = page.log.locator(".bubble-wrap")
    distance = "node => node.scrollHeight - node.scrollTop - node.clientHeight"
    for _ in range(3):
        await page.ask("x " * 20 + "a question of some length " * 4)
        await page.answered()
    assert await log.evaluate(distance) < 2
    site.naive.gate.pause()
    await page.ask("one more")
    await log.hover()
    await page.page.mouse.wheel(0, -400)
    await page.page.wait_for_function("document.querySelector('#chat-log .bubble-wrap').scrollTop < 400")
    site.naive.gate.resume()
    await page.answered()
    assert await log.evaluate(distance) > 300


async def test_the_visitors_own_request_is_made_known_to_the_panels(site: Site, page: ChatPage) -> None:
    await page.page.evaluate(
        "window.addEventListener('servescope:mine', event => { window.mine = event.detail.requestId; })"
    )
    await page.ask("Hello")
    await expect(page.answers).to_contain_text("word1")
    mine = await page.page.wait_for_function("window.mine")
    request_id = await mine.json_value()
    in_flight = site.naive.recorder.head().snapshot.requests
    assert [request.arrived.request_id for request in in_flight] == [request_id]
    await expect(page.page.locator("#chat-meta")).to_contain_text("tokens")
    await page.stop.click()
    await page.answered()


async def test_a_page_closed_mid_answer_frees_its_slot(site: Site, open_page: OpenPage) -> None:
    page = await open_page()
    await page.ask("Go on for ever")
    await expect(page.answers).to_contain_text("word2")
    await page.page.close()
    await site.all_slots_are_free()
