"""Pictures of the panels in every state: ``python -m tests.js.harness.look URL FOLDER [name …]``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

DESK, PHONE, PROJECTOR = (1440, 900), (390, 844), (1920, 1080)
LARGER = """() => {
    const { scrollWidth, scrollHeight } = document.documentElement;
    return [scrollWidth - innerWidth, scrollHeight - innerHeight];
}"""
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]


def nothing(page: Page) -> None: ...


def scrub(page: Page) -> None:
    page.locator(".scope-slider").evaluate(
        "s => { s.value = Math.round(s.max * 0.6); s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


def hover_cell(page: Page) -> None:
    page.locator("#panel-batch canvas").hover(position={"x": 300, "y": 20})


def hover_block(page: Page) -> None:
    page.locator("#panel-kv canvas").hover(position={"x": 70, "y": 20})


def hover_timeline(page: Page) -> None:
    page.locator("#panel-queues canvas").hover(position={"x": 260, "y": 40})


def open_menu(page: Page) -> None:
    page.locator(".scope-menu summary").click()


def ask_key(page: Page) -> None:
    page.locator("[data-action=pause]").click()
    page.wait_for_timeout(300)


SHOTS: dict[str, tuple[dict[str, str], tuple[int, int], Callable[[Page], None]]] = {
    "naive": ({"backend": "naive"}, DESK, nothing),
    "naive-dark": ({"backend": "naive", "theme": "dark"}, DESK, nothing),
    "naive-ko": ({"backend": "naive", "lang": "ko"}, DESK, nothing),
    "naive-hover": ({"backend": "naive"}, DESK, hover_cell),
    "naive-scrub": ({"backend": "naive"}, DESK, scrub),
    "naive-phone": ({"backend": "naive"}, PHONE, nothing),
    "naive-phone-dark-ko": ({"backend": "naive", "theme": "dark", "lang": "ko"}, PHONE, nothing),
    "naive-panels": ({"backend": "naive", "view": "panels"}, PROJECTOR, nothing),
    "pair": ({"backend": "pair"}, DESK, nothing),
    "one": ({"backend": "one"}, DESK, nothing),
    "paused": ({"backend": "half-naive"}, DESK, nothing),
    "paged": ({"backend": "half-paged"}, DESK, nothing),
    "paged-dark": ({"backend": "half-paged", "theme": "dark"}, DESK, hover_block),
    "crowd": ({"backend": "half-crowd"}, DESK, nothing),
    "crowd-dark": ({"backend": "half-crowd", "theme": "dark"}, DESK, hover_timeline),
    "null": ({"backend": "half-null"}, DESK, nothing),
    "null-dark-ko": ({"backend": "half-null", "theme": "dark", "lang": "ko"}, DESK, nothing),
    "pool-2800": ({"backend": "half-pool-2800"}, DESK, nothing),
    "pool-10000": ({"backend": "half-pool-10000"}, DESK, hover_block),
    "pool-10000-dark": ({"backend": "half-pool-10000", "theme": "dark"}, DESK, nothing),
    "pool-60000": ({"backend": "half-pool-60000"}, DESK, nothing),
    "pool-phone": ({"backend": "half-pool-10000"}, PHONE, nothing),
    "pool-panels": ({"backend": "half-pool-10000", "view": "panels"}, PROJECTOR, nothing),
    "remote": ({"backend": "remote"}, DESK, nothing),
    "remote-dark-ko": ({"backend": "remote", "theme": "dark", "lang": "ko"}, DESK, nothing),
    "remotes": ({"backend": "remotes"}, DESK, nothing),
    "remotes-phone": ({"backend": "remotes"}, PHONE, nothing),
    "generate": ({"backend": "half-generate"}, DESK, nothing),
    "generate-dark": ({"backend": "generate", "theme": "dark"}, DESK, nothing),
    "ready": ({"backend": "ready"}, DESK, nothing),
    "ready-phone": ({"backend": "ready"}, PHONE, nothing),
    "idle": ({"backend": "idle"}, DESK, nothing),
    "starting": ({"backend": "starting"}, DESK, nothing),
    "starting-dark-ko": ({"backend": "starting", "theme": "dark", "lang": "ko"}, DESK, nothing),
    "crashed": ({"backend": "crashed"}, DESK, open_menu),
    "unavailable": ({"backend": "unavailable"}, DESK, nothing),
    "key": ({"backend": "half-generate"}, DESK, ask_key),
}


def main(url: str, folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        for name in names or SHOTS:
            query, (width, height), act = SHOTS[name]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.on("console", lambda message, name=name: print(name, message.type, message.text))
            page.on("pageerror", lambda error, name=name: print(name, "error", error))
            page.goto(f"{url}/?{urlencode(query)}")
            page.wait_for_selector("#transport")
            page.wait_for_timeout(1500)
            act(page)
            page.wait_for_timeout(500)
            overflow = page.evaluate(LARGER)
            print(name, "page larger than the window by", overflow)
            page.screenshot(path=folder / f"{name}.png", full_page=width < 500)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
