"""What the panels of a page are drawn from, and what they say, to hold one page against another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from playwright.async_api import Page

STATE = """(store) => JSON.stringify(store.state, (key, value) => {
  if (key === 'owner' || key === 'version') return undefined;  // of this copy, not of what happened
  if (value instanceof Map) return [...value];
  return value;
})"""
"""Everything that the reducer knows."""
IN_WORDS = "[...document.querySelectorAll('.scope-panel [id$=-summary]')].map((part) => part.textContent)"


async def live_state(page: Page) -> dict[str, Any]:
    """Of the engine that the page follows."""
    state: dict[str, Any] = json.loads(await page.evaluate(f"({STATE})(window.servescope.store)"))
    return state


async def replayed_state(page: Page) -> dict[str, Any]:
    """Of the recording that is open."""
    shown = f"import('./assets/js/traces/traces.js').then(({{ shown }}) => ({STATE})(shown().store))"
    state: dict[str, Any] = json.loads(await page.evaluate(shown))
    return state


async def say_the_same(one: Page, other: Page) -> None:
    """Summaries are told at a calm rate, the last for certain."""
    async with asyncio.timeout(20):
        while await one.evaluate(IN_WORDS) != await other.evaluate(IN_WORDS):
            await one.evaluate("new Promise((done) => setTimeout(done, 100))")
