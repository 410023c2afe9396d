from __future__ import annotations

import pytest

from components.browser import Browser


def test_a_browser_tells_its_language_and_visitor() -> None:
    assert Browser.from_event({"lang": "ko", "visitor": "abc"}) == Browser("ko", "abc")


@pytest.mark.parametrize(
    "told", [None, [], "x", {}, {"lang": "xx", "visitor": 7}, {"lang": ["ko"], "visitor": "v" * 1000}]
)
def test_what_makes_no_sense_is_as_if_nothing_was_told(told: object) -> None:
    assert Browser.from_event(told) == Browser("en", None)
