"""What the panels show of engines that tell sums only, and of a pool of thousands of blocks.

The records are appended by the tests: what such engines emit, without what makes them emit it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from playwright.async_api import Browser, Page, expect
from pytest_asyncio import fixture

from backends.records import EngineConfig, Exposure, KVDelta, TraceHeader
from tests import factories as make
from tests.browser.conftest import DESKTOP
from tests.browser.site import SETTINGS, Complaints, serving
from tests.fakes import FakeBackend

NOTES = {
    "batch": "What is in its steps only the server knows.",
    "kv": "Which block is whose only the server knows.",
    "transport": "A server elsewhere cannot be paused or stepped.",
}
SUMS_ONLY = {
    "engine": EngineConfig(),
    "measured": dict.fromkeys(("batch", "kv", "queues"), Exposure.NOT_EXPOSED)
    | {"latency": Exposure.DERIVED},
    "notes": NOTES,
}
LARGE_POOL = {
    "engine": EngineConfig(block_size=16, num_blocks=10_000, null_block=0, max_num_seqs=8),
    "measured": dict.fromkeys(("batch", "kv", "queues"), Exposure.MEASURED) | {"latency": Exposure.DERIVED},
    "notes": {},
}


class Told:
    """A page over an engine that has told what it is, and says nothing but what a test makes it say."""

    def __init__(self, engine: FakeBackend, page: Page) -> None:
        self.engine = engine
        self.page = page

    async def tell(self, *records: Any) -> None:
        """Append, and wait until the page has it all."""
        self.engine.recorder.extend(records)
        time = max(record.time if hasattr(record, "time") else record.start_time for record in records)
        await self.page.wait_for_function(f"window.servescope.store.history.live.time >= {time}")

    @property
    def now(self) -> float:
        header = self.engine.recorder.header
        assert header is not None
        return header.start_time + 1


@fixture(loop_scope="session")
async def engine() -> FakeBackend:
    engine = FakeBackend("naive", settings=SETTINGS)
    await engine.start()
    return engine


@fixture(loop_scope="session")
async def open_told(engine: FakeBackend, browser: Browser) -> AsyncIterator[Any]:
    async with serving({"naive": engine}) as url:
        complaints = Complaints(url)
        context = await browser.new_context(viewport=DESKTOP, locale="en-US")

        async def open_one(fields: dict[str, Any]) -> Told:
            engine.recorder.append(self_description(engine, fields))
            page = await context.new_page()
            complaints.listen(page)
            await page.goto(url)
            await page.wait_for_function("window.servescope.store?.connection.phase === 'open'")
            await page.wait_for_function("window.servescope.store.history.live.header !== null")
            return Told(engine, page)

        yield open_one
        await context.close()
        assert complaints.seen == []


def self_description(engine: FakeBackend, fields: dict[str, Any]) -> TraceHeader:
    assert engine.recorder.header is not None
    return msgspec.structs.replace(engine.recorder.header, **fields)


async def test_what_servers_tell_stands_in_the_panels_with_its_source(open_told: Any) -> None:
    told = await open_told(SUMS_ONLY)
    queues, kv = told.page.locator("#panel-queues"), told.page.locator("#panel-kv")
    await expect(told.page.locator("#panel-batch .scope-empty")).to_have_text(NOTES["batch"])
    await expect(kv.locator(".scope-empty")).to_have_text(NOTES["kv"])
    await told.tell(
        make.gauges(told.now, server=0, num_running=3, num_waiting=1, kv_cache_usage=0.25),
        make.gauges(
            told.now + 1, server=1, num_running=2, num_waiting=4, kv_cache_usage=0.5,
            prefix_cache_queries=200, prefix_cache_hits=50, num_preemptions=7,
        ),
    )  # fmt: skip
    await expect(queues.locator("[data-stage=running] b")).to_have_text("5")
    await expect(queues.locator("[data-stage=waiting] b")).to_have_text("5")
    await expect(queues.locator("[data-stage=incoming] b")).to_have_text("–")
    await expect(queues.locator(".scope-source")).to_have_text("Measured by the server: /metrics")
    rows = kv.locator(".scope-servers tbody tr")
    await expect(rows).to_have_text(["025%––––", "150%25%200507"])
    await expect(kv.locator(".scope-rest")).to_contain_text(NOTES["kv"])
    await kv.get_by_text("hit rate").hover()
    await expect(told.page.locator(".scope-tooltip")).to_contain_text("hits / queries")


async def test_a_request_to_a_server_elsewhere_is_sent_and_then_answered(open_told: Any) -> None:
    told = await open_told(SUMS_ONLY)
    queues, latency = told.page.locator("#panel-queues"), told.page.locator("#panel-latency")
    await told.tell(make.arrived("a", told.now, num_prompt_tokens=None))
    await expect(queues.locator(".scope-headline")).to_have_text("1 in flight")
    await expect(queues.locator("[data-stage=waiting] b")).to_have_text("–")
    chunks = [make.token("a", index, told.now + 1 + index // 2) for index in range(4)]
    await told.tell(*chunks, make.finished("a", told.now + 3, num_prompt_tokens=9, num_output_tokens=9))
    row = latency.locator("tbody tr").first
    await expect(row.locator("td").nth(6)).to_have_text("9")
    await expect(row.locator("td").nth(2)).to_have_attribute("data-mark", "∘")
    await expect(latency.locator(".scope-gaps")).to_contain_text("2 of 3 gaps are zero")


async def test_what_cannot_be_stepped_has_no_such_controls_and_says_why(open_told: Any) -> None:
    told = await open_told(SUMS_ONLY)
    for action in ("pause", "step", "speed"):
        control = told.page.locator(f"[data-action={action}]")
        await expect(control).to_be_disabled()
        await expect(control).to_have_attribute("title", NOTES["transport"])
    await expect(told.page.locator(".scope-position")).to_have_text("steps not exposed")


async def test_a_call_that_waits_for_the_one_before_it_is_queued(open_told: Any) -> None:
    told = await open_told(LARGE_POOL)
    queues = told.page.locator("#panel-queues")
    flat = make.step(0, [make.row("a", 4)], told.now, input_shape=[4])
    calls = make.queues(told.now + 1, queues={"blocking_calls": 1, "waiting": 0})
    await told.tell(make.arrived("a", told.now), make.arrived("b", told.now, seat=1), flat, calls)
    await expect(told.page.locator("#panel-batch .scope-headline")).to_have_text("torch.Size([4])")
    await expect(queues.locator("[data-name=blocking_calls]")).to_have_text("blocking calls1")
    for stage, number in (("incoming", "1"), ("waiting", "1"), ("running", "1 / 8")):
        await expect(queues.locator(f"[data-stage={stage}] b")).to_have_text(number)
    await told.tell(make.queues(told.now + 2, queues={"waiting": 0}))  # as when another engine is chosen
    await expect(queues.locator(".scope-queue")).to_have_text(["waiting0"])


async def test_a_pool_of_ten_thousand_blocks_is_drawn_whole_and_close_up(open_told: Any) -> None:
    told = await open_told(LARGE_POOL)
    kv, tooltip = told.page.locator("#panel-kv"), told.page.locator(".scope-tooltip")
    taken = KVDelta(num_free=9_996, taken={"a": [1, 2, 5_000]}, filled_slots={"a": 40})
    await told.tell(make.arrived("a", told.now), make.step(0, [make.row("a", 40)], told.now, kv=taken))
    await expect(kv.locator(".scope-headline")).to_have_text("3 of 9,999 blocks")
    await expect(kv.locator(".scope-legends")).to_contain_text("null block: kept by the engine")
    canvas = kv.locator("canvas")
    await canvas.hover(position={"x": 4, "y": 19})
    await expect(tooltip).to_contain_text("blocks 0 to")
    await expect(tooltip).to_contain_text("held by A2")
    await expect(tooltip).to_contain_text("This cell stands for")
    box = await canvas.bounding_box()
    assert box is not None
    await canvas.hover(position={"x": 8, "y": box["height"] * 0.55 + 24})
    await expect(tooltip).to_contain_text("block 1")
    assert await told.page.evaluate("window.servescope.store.lit") == "a"


async def test_a_pool_is_drawn_again_only_when_a_block_has_changed(open_told: Any) -> None:
    told = await open_told(LARGE_POOL)
    taken = KVDelta(num_free=9_998, taken={"a": [1]}, filled_slots={"a": 4})
    await told.tell(make.arrived("a", told.now), make.step(0, [make.row("a", 4)], told.now, kv=taken))
    await expect(told.page.locator("#panel-kv .scope-headline")).to_have_text("1 of 9,999 blocks")
    await told.page.evaluate(
        """() => {
            window.drawn = { kv: 0, batch: 0 };
            const clear = CanvasRenderingContext2D.prototype.clearRect;
            CanvasRenderingContext2D.prototype.clearRect = function (...box) {
                const panel = this.canvas.closest('.scope-panel').id.replace('panel-', '');
                if (panel in window.drawn) window.drawn[panel] += 1;
                return clear.apply(this, box);
            };
        }"""
    )
    await told.tell(make.step(1, [make.row("a", 1, 4)], told.now + 1))
    await told.page.wait_for_function("window.drawn.batch > 0")
    assert await told.page.evaluate("window.drawn.kv") == 0
    more = KVDelta(num_free=9_997, taken={"a": [2]}, filled_slots={"a": 17})
    await told.tell(make.step(2, [make.row("a", 1, 16)], told.now + 2, kv=more))
    await told.page.wait_for_function("window.drawn.kv > 0")
