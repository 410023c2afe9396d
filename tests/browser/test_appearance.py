"""That everything has its place, on a desk and on a phone, and can be read and reached."""

from __future__ import annotations

from tests.browser.conftest import OpenPage
from tests.browser.site import ChatPage, Site

PHONE = {"width": 390, "height": 844}

CUT_OFF = """() => [...document.querySelectorAll('#page-header *, #chat-column *')]
    .filter(node => node.getClientRects().length && !node.closest('.sr-only, .bubble-wrap'))
    .filter(node => {
        const box = node.getBoundingClientRect();
        return box.left < -1 || box.right > innerWidth + 1;
    }).map(node => node.outerHTML.slice(0, 120))"""

FAINT = """() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = colour => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
    const background = node => {
        const chain = [];
        for (let up = node; up; up = up.parentElement) {
            chain.unshift(rgba(getComputedStyle(up).backgroundColor));
        }
        return chain.reduce((below, colour) => over(colour, below), [255, 255, 255]);
    };
    const luminance = colour => colour
        .map(value => value / 255)
        .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.getClientRects().length) continue;
        if (node.closest('script, style, .sr-only, [disabled], label:has(:disabled), #scope')) continue;
        const below = background(node);
        let opacity = 1;
        for (let up = node; up; up = up.parentElement) opacity *= getComputedStyle(up).opacity;
        const [r, g, b, a] = rgba(getComputedStyle(node).color);
        const [one, other] = [luminance(over([r, g, b, a * opacity], below)), luminance(below)];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${walker.currentNode.data.trim().slice(0, 40)}`);
    }
    return faint;
}"""


async def test_on_a_desk_nothing_scrolls_and_the_chat_takes_a_third(page: ChatPage) -> None:
    size = await page.page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    assert size == [1440, 900]
    chat = await page.page.locator("#chat-column").bounding_box()
    scope = await page.page.locator("#scope").bounding_box()
    assert chat is not None
    assert scope is not None
    assert 0.34 < chat["width"] / (chat["width"] + scope["width"]) < 0.38
    for box in (chat, scope):
        assert 880 < box["y"] + box["height"] < 890


async def test_on_a_desk_all_of_a_long_conversation_stays_in_its_column(site: Site, page: ChatPage) -> None:
    site.say(" ".join(["word"] * 140))
    for _ in range(3):
        await page.ask("x" * 300)
        await page.answered()
    await page.open_settings()
    for part in (page.input, page.page.locator("#chat-settings")):
        box = await part.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 890
    assert await page.page.evaluate("document.documentElement.scrollHeight") == 900
    assert await page.page.evaluate(CUT_OFF) == []


async def test_on_a_phone_the_chat_is_first_and_nothing_is_cut_off(site: Site, open_page: OpenPage) -> None:
    page = await open_page("?lang=ko", viewport=PHONE, has_touch=True, is_mobile=True)
    site.say("An answer of a few words.")
    await page.fill()
    assert await page.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert await page.page.evaluate(CUT_OFF) == []
    chat = await page.page.locator("#chat-card").bounding_box()
    scope = await page.page.locator("#scope").bounding_box()
    assert chat is not None
    assert scope is not None
    assert chat["y"] + chat["height"] <= scope["y"]
    assert chat["width"] > PHONE["width"] - 40
