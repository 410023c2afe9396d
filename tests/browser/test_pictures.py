"""That the documents' pictures show the page as it is: two of them taken anew, from the same recordings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser
from pytest_asyncio import fixture

from pictures.album import ALBUM, FONT_WIDTHS, path_of
from pictures.camera import font_widths, take
from pictures.compare import difference, opened, stored
from tests.browser.site import serving

TOLERANCE = 40
"""Of 255: what another version of the browser may smooth otherwise. No two colours of the page that mean
something are so near."""


@fixture(scope="module", loop_scope="session")
async def address() -> AsyncIterator[str]:
    """A server with the shipped recordings, and no engine."""
    async with serving({}) as url:
        yield url


@pytest.mark.parametrize(("name", "theme"), [("paged", "light"), ("vllm", "dark")])
async def test_a_stored_picture_is_what_the_page_shows(
    browser: Browser, address: str, tmp_path: Path, name: str, theme: str
) -> None:
    if await font_widths(browser) != json.loads(FONT_WIDTHS.read_text()):
        pytest.skip("The fonts here are not those of the pictures: fonts-noto-core and fonts-liberation.")
    (shot,) = (shot for shot in ALBUM if shot.name == name)
    taken = await take(browser, address, shot, theme)

    found = difference(opened(taken), stored(path_of(name, theme)), TOLERANCE)
    if found is not None:
        (tmp_path / "taken.png").write_bytes(taken)
        found.picture.save(tmp_path / "difference.png")
        pytest.fail(
            f"{path_of(name, theme).name}: {found}. See taken.png and difference.png in {tmp_path}; "
            f"if the page is meant to look so: make screenshots"
        )
