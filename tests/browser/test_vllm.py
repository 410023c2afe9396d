"""Real vLLM on the page: ``python app.py`` with a pool of 12 blocks, in Chromium.

What is asserted is what a person sees: the panels' numbers, legends and tooltips. Where a picture has
no text, the state that it is drawn from stands in.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import groupby
from typing import Any

import httpx
import psutil
import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect
from pytest_asyncio import fixture

from backends.vllm_async.engine import NOT_INSTALLED, is_installed
from tests.app_server import app_server
from tests.browser.conftest import OpenPage
from tests.browser.reducer_state import live_state, replayed_state, say_the_same
from tests.browser.site import ChatPage, Complaints, serving

START_PATIENCE = 240_000
"""Milliseconds for vLLM to come up, the first time with the weights to prepare."""
PATIENCE = 90_000
"""Milliseconds for some steps on a busy machine."""
OPTIONS = ("--backends", "vllm", "--num-blocks", "12", "--block-size", "32")
SENTENCE = "The quick brown fox jumps over the lazy dog and runs on through the forest to the river. "
PREFIX = SENTENCE * 3
"""Fills one block of 32 slots and most of a second."""
NUM_PROMPTS = 6
NUM_TOKENS = 12
LAST_SAMPLES = 10
"""Times to look again: samples of queues come a little later than the last token."""
TOKENS = 6
"""The column of the Latency table."""

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_installed(), reason=NOT_INSTALLED),
]

LIVE = "window.servescope.store.history.live"
ENGINE_STATE = "window.servescope.store?.engines.get('vllm')?.state"
LAST_STEP = f"({LIVE}.column?.step.step_id ?? -1)"
PREEMPTIONS = f"{LIVE}.totals.preemptions"
IN_FLIGHT = f"[...{LIVE}.requests.values()].filter(request => request.finishReason === null).length"
SPANS = f"""() => [...{LIVE}.requests.values()].filter(request => request.numPreemptions > 0)
    .map(request => request.series.spanKinds.slice(0, request.numSpans))"""
"""What the Queues timeline draws of each request that was ever preempted, in order."""
CALLS = """last => {
    const { history } = window.servescope.store;
    const calls = [];
    for (let ordinal = history.first; ordinal <= history.last; ordinal += 1) {
        const { step } = history.column(ordinal);
        if (step.step_id > last) calls.push(step.rows.map(row => row.request_id.split('/')[0]));
    }
    return calls;
}"""
"""Of each column of the Batch picture after a step: for each row, the call it belongs to."""
STATES = """() => {
    window.seen = [];
    const line = document.querySelector('.scope-status-text');
    const note = () => window.seen.push(line.textContent);
    new MutationObserver(note).observe(line, { characterData: true, childList: true, subtree: true });
}"""
"""Note every sentence that the line under the transport says from now on."""
ERRORS = "document.querySelectorAll('#chat-log .notice-error').length"

TIP = """tip => tip.hidden ? null : Object.fromEntries([
    ['title', tip.querySelector('.scope-tooltip-title').lastChild.textContent],
    ['note', tip.querySelector('p')?.textContent ?? ''],
    ...[...tip.querySelectorAll('dt')].map(name => [name.textContent, name.nextSibling.textContent]),
])"""

Tip = dict[str, str]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with app_server(*OPTIONS) as address:
        yield f"{address}/"


@fixture(loop_scope="session")
async def complaints(address: str) -> AsyncIterator[Complaints]:
    complaints = Complaints(address)
    yield complaints
    assert complaints.seen == []


@fixture(loop_scope="session")
async def open_page(address: str, desktop: BrowserContext, complaints: Complaints) -> AsyncIterator[OpenPage]:
    """A page on the real server, vLLM ready."""
    async with AsyncExitStack() as opened:

        async def open_one(query: str = "", **_: Any) -> ChatPage:
            page = await desktop.new_page()
            opened.push_async_callback(page.close)
            complaints.listen(page)
            await page.goto(f"{address}?{query}")
            await page.wait_for_function(f"{ENGINE_STATE} === 'ready'", timeout=START_PATIENCE)
            await page.wait_for_function(f"{LIVE}.header !== null")
            return ChatPage(page)

        yield open_one


@fixture(loop_scope="session")
async def ask(address: str) -> AsyncIterator[Any]:
    """``ask("v1/completions", …)``: a task with the answer. None is left behind."""
    timeout = httpx.Timeout(PATIENCE / 1000)
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=timeout) as client:
        tasks: list[asyncio.Task[Any]] = []

        async def post(path: str, body: dict[str, Any]) -> Any:
            response = await client.post(path, json=body)
            response.raise_for_status()
            return response.json()

        def start(path: str, **body: Any) -> asyncio.Task[Any]:
            tasks.append(asyncio.create_task(post(path, body)))
            return tasks[-1]

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def complete(ask: Any, prompt: str, max_tokens: int = NUM_TOKENS) -> asyncio.Task[Any]:
    return ask(
        "v1/completions", model="vllm", prompt=prompt, max_tokens=max_tokens, temperature=0, ignore_eos=True
    )


def call(ask: Any, mode: str, *prompts: str) -> asyncio.Task[Any]:
    return ask(f"generate_vllm?mode={mode}", prompts=list(prompts), max_tokens=4, temperature=0)


async def pause(page: Page) -> None:
    await page.locator("[data-action=pause]").click()
    await expect(page.locator("[data-action=step]")).to_be_enabled()


async def resume(page: Page) -> None:
    await page.locator("[data-action=pause]").click()
    await page.wait_for_function(f"{ENGINE_STATE} === 'ready'")


async def step(page: Page) -> None:
    """Press the button, and wait until the step it runs is drawn."""
    last = await page.evaluate(LAST_STEP)
    await page.locator("[data-action=step]").click()
    await page.wait_for_function(f"{LAST_STEP} === {last + 1}", timeout=PATIENCE)


async def all_have_ended(page: Page) -> None:
    await page.wait_for_function(f"{IN_FLIGHT} === 0", timeout=PATIENCE)


async def answers_of_few_tokens(page: ChatPage) -> None:
    await page.open_settings()
    number = page.page.locator("#settings-max-tokens input[type=number]")
    await number.fill("6")
    await number.press("Tab")


def stage(page: Page, name: str) -> Locator:
    """A number in the flow of the Queues panel."""
    return page.locator(f"#panel-queues [data-stage={name}] b")


def depth(page: Page, name: str) -> Locator:
    """A queue by its own name, as vLLM's scheduler was last seen."""
    return page.locator(f"#panel-queues [data-name={name}] b")


async def number_in(place: Locator) -> int:
    text = await place.inner_text()
    return int(text) if text else 0


def engine_cores() -> list[psutil.Process]:
    """Of vLLM, anywhere below this process."""
    family = psutil.Process().children(recursive=True)
    return [process for process in family if "EngineCore" in process.name()]


async def tips_over(page: Page, canvas: Locator, columns: int, rows: int) -> list[Tip]:
    """The tooltip at the middle of each part of a picture, where there is one: name → value."""
    box = await canvas.bounding_box()
    assert box is not None
    tips = []
    for place in range(columns * rows):
        x = box["x"] + (place % columns + 0.5) / columns * box["width"]
        y = box["y"] + (place // columns + 0.5) / rows * box["height"]
        await page.mouse.move(x, y)
        tips.append(await page.locator(".scope-tooltip").evaluate(TIP))
    await page.mouse.move(5, 5)
    return [tip for tip in tips if tip is not None]


async def block_tables(page: Page) -> dict[str, list[int]]:
    """Of each request that runs, as the KV panel writes it when the request is pointed at."""
    tables = {}
    rows = page.locator("#panel-latency tr[data-status=running]")
    await expect(rows.first).to_be_attached()
    for index in range(await rows.count()):
        await rows.nth(index).hover()
        seat, *pairs = (await page.locator(".scope-block-table").inner_text()).split()
        places, blocks = zip(*(pair.split("→") for pair in pairs), strict=True)
        assert list(places) == [str(place) for place in range(len(blocks))], "logical blocks in order"
        tables[seat] = [int(block) for block in blocks]
    await page.mouse.move(5, 5)
    return tables


async def six_prompts_held(page: Page, ask: Any) -> list[asyncio.Task[Any]]:
    """In vLLM's waiting queue, the block they have in common cached."""
    await complete(ask, PREFIX, max_tokens=1)
    await all_have_ended(page)
    await pause(page)
    tasks = [complete(ask, f"{PREFIX}Number {number}:") for number in range(NUM_PROMPTS)]
    await expect(depth(page, "waiting")).to_have_text(str(NUM_PROMPTS))
    return tasks


async def test_six_prompts_share_a_block_are_preempted_and_resume_in_a_pool_of_twelve(
    open_page: OpenPage, ask: Any
) -> None:
    page = (await open_page()).page
    kv, batch = page.locator("#panel-kv"), page.locator("#panel-batch")
    finished = await number_in(stage(page, "finished"))
    preempted_before = await page.evaluate(PREEMPTIONS)
    tasks = await six_prompts_held(page, ask)
    await expect(stage(page, "waiting")).to_have_text("6")
    await expect(kv.locator(".scope-headline")).to_have_text("0 of 11 blocks")

    await step(page)
    await expect(stage(page, "running")).to_have_text("6 / 16")
    await expect(kv.locator(".scope-headline")).to_have_text("7 of 11 blocks")
    await check_blocks(page)

    while await page.evaluate(PREEMPTIONS) == preempted_before:
        await step(page)
    await expect(stage(page, "waiting")).to_have_text("1")
    await expect(stage(page, "running")).to_have_text("5 / 16")
    await expect(page.locator("#panel-queues-summary")).to_contain_text("preempted, waits again")
    await expect(batch.locator(".scope-counts")).to_contain_text("rows 5")
    await expect(kv.locator(".scope-headline")).to_have_text("11 of 11 blocks")

    await resume(page)
    answers = await asyncio.gather(*tasks)
    await all_have_ended(page)
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [NUM_TOKENS] * NUM_PROMPTS
    rows = page.locator("#panel-latency tbody tr")
    for index in range(NUM_PROMPTS):  # the newest come first
        await expect(rows.nth(index).locator("td").nth(TOKENS)).to_have_text(str(NUM_TOKENS))
    await check_timeline(page)
    await expect(stage(page, "finished")).to_have_text(str(finished + 7))
    await expect(kv.locator(".scope-headline")).to_have_text("0 of 11 blocks")


async def test_a_recording_of_vllm_ends_in_every_panel_as_the_live_page_did(
    address: str, open_page: OpenPage, ask: Any, desktop: BrowserContext
) -> None:
    live = (await open_page()).page
    tasks = await six_prompts_held(live, ask)
    await resume(live)
    await asyncio.gather(*tasks)
    await all_have_ended(live)
    async with (
        serving({}) as elsewhere,
        httpx.AsyncClient(base_url=address, trust_env=False) as client,
        await desktop.new_page() as page,
    ):
        complaints = Complaints(elsewhere)
        complaints.listen(page)
        await page.goto(elsewhere)
        for attempt in range(LAST_SAMPLES):
            trace = (await client.get("telemetry/vllm/trace?packed=true")).content
            await open_file(page, f"{attempt}.jsonl.gz", trace)
            state = await live_state(live)
            if await replayed_state(page) == state:
                break
        assert await replayed_state(page) == state
        assert state["totals"]["preemptions"] > 0
        await live.bring_to_front()  # what is hidden is not drawn
        await say_the_same(page, live)
        assert complaints.seen == []


async def open_file(page: Page, name: str, trace: bytes) -> None:
    """In the Traces tab: it is read there, and no engine has anything to do with it."""
    await page.locator(".traces-file input").set_input_files({"name": name, "mimeType": "", "buffer": trace})
    await expect(page.locator(".traces-what h2")).to_have_text(name)


async def check_blocks(page: Page) -> None:
    """The block tables of six requests, and every block of the pool, say the same."""
    tables = await block_tables(page)
    tips = await tips_over(page, page.locator("#panel-kv canvas"), columns=4, rows=3)
    of = {tip["title"]: tip for tip in tips}
    null = of.pop("block 0")
    assert "null block" in null["note"]
    assert "reference count" not in null, "it is nobody's, and nobody can have it"
    assert len(tables) == NUM_PROMPTS
    ((shared,), own) = {table[0] for table in tables.values()}, {table[1] for table in tables.values()}
    assert len(own) == NUM_PROMPTS
    holders = {title: tip["reference count"] for title, tip in of.items()}
    assert len(holders) == 11
    free = dict.fromkeys(holders, "0")
    assert holders == free | {f"block {block}": "1" for block in own} | {f"block {shared}": "6"}
    assert of[f"block {shared}"]["held by"].split() == sorted(tables)
    assert of[f"block {shared}"]["filled slots"] == "32 / 32"


async def check_timeline(page: Page) -> None:
    """Whoever was preempted came back: computed again, and went on to its end."""
    spans = await page.evaluate(SPANS)
    assert spans, "somebody was preempted"
    for kinds in spans:
        again = kinds.index("preempted") + 1
        assert kinds[:again] == ["queued", "prefill", "decode", "preempted"]
        assert kinds[again] == "prefill"
        assert kinds[-1] == "decode"
    canvas = page.locator("#panel-queues canvas")
    tips = await tips_over(page, canvas, columns=1, rows=20)
    assert any("preempted" in tip for tip in tips)
    assert all(tip["title"].startswith("finished") for tip in tips)


async def test_two_chats_are_told_when_engine_core_dies_and_the_next_is_answered(open_page: OpenPage) -> None:
    first, second = await open_page(), await open_page()
    speed = first.page.locator("[data-action=speed]")
    await speed.select_option("0.25")  # both answers are still being written when it happens
    for chat in (first, second):
        await chat.ask("Tell me a long story about the sea.")
        await expect(chat.answers.last).to_contain_text(re.compile(r"\w"), timeout=PATIENCE)
    await first.page.evaluate(STATES)

    (core,) = engine_cores()
    core.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    for chat in (first, second):
        await chat.page.wait_for_function(f"{ERRORS} === 1", polling=20, timeout=PATIENCE)
        print(f"an error on the page {time.monotonic() - killed_at:.2f} s after the kill")
        await expect(chat.errors).to_contain_text("The answer broke off")
        await expect(chat.errors).to_contain_text("EngineCore")
        await chat.answered()

    await expect(first.page.locator("#panel-kv .scope-headline")).to_have_text("")
    await expect(first.engine("vllm")).to_have_attribute("data-state", "ready", timeout=START_PATIENCE)
    await expect(first.page.locator(".scope-status-text")).to_have_text("vLLM is ready")
    seen = await first.page.evaluate("window.seen")
    assert any(said.startswith("vLLM is restarting") for said in seen)
    await speed.select_option("0")
    await answers_of_few_tokens(first)
    await first.ask("And now?")
    await expect(first.send).to_be_enabled(timeout=PATIENCE)
    await expect(first.errors).to_have_count(1)
    await expect(first.answers.last).not_to_be_empty()


async def test_the_two_ways_to_call_vllm_have_words_in_korean_too(open_page: OpenPage) -> None:
    page = await open_page("lang=ko")
    labels = ["비동기: 호출들이 배치를 공유", "블로킹: 한 번에 한 호출"]
    await expect(page.page.locator("#backend-mode label")).to_have_text(labels)


async def test_three_prompts_of_one_call_are_one_batch(open_page: OpenPage, ask: Any) -> None:
    page = (await open_page()).page
    for mode in ("blocking", "async"):
        await pause(page)
        task = call(ask, mode, "One two", "Three four", "Five six")
        await expect(depth(page, "waiting")).to_have_text("3")
        await step(page)
        await expect(page.locator("#panel-batch .scope-counts")).to_contain_text("rows 3")
        await resume(page)
        assert len((await task)["generated_texts"]) == 3
        await all_have_ended(page)


async def test_two_blocking_calls_are_drawn_one_after_the_other_and_two_asynchronous_ones_together(
    open_page: OpenPage, ask: Any
) -> None:
    page = (await open_page()).page
    last = await page.evaluate(LAST_STEP)
    await pause(page)
    tasks = [call(ask, "blocking", "One two", "Three four")]
    await expect(depth(page, "waiting")).to_have_text("2")
    tasks.append(call(ask, "blocking", "Five six", "Seven eight"))
    await expect(depth(page, "blocking_calls")).to_have_text("1")
    await expect(stage(page, "incoming")).to_have_text("1")
    await step(page)
    await expect(page.locator("#panel-batch .scope-counts")).to_contain_text("rows 2")
    await resume(page)
    await asyncio.gather(*tasks)
    await all_have_ended(page)
    columns = await page.evaluate(CALLS, last)
    assert all(len(set(column)) == 1 for column in columns), "no step has rows of both"
    assert len([name for name, _ in groupby(column[0] for column in columns)]) == 2

    await pause(page)
    tasks = [call(ask, "async", "One two", "Three four"), call(ask, "async", "Five six", "Seven eight")]
    await expect(depth(page, "waiting")).to_have_text("4")
    await step(page)
    await expect(page.locator("#panel-batch .scope-counts")).to_contain_text("rows 4")
    await resume(page)
    await asyncio.gather(*tasks)
    await all_have_ended(page)


async def test_a_blocking_chat_says_that_it_waits_and_then_what_it_got(open_page: OpenPage) -> None:
    page = await open_page()
    modes = page.page.locator("#backend-mode label")
    await expect(modes).to_have_text(["async: calls share the batch", "blocking: one call at a time"])
    await expect(page.page.locator("#backend-mode input[value=async]")).to_be_checked()
    await modes.nth(1).click()
    await answers_of_few_tokens(page)
    await pause(page.page)
    await page.ask("Name three colours.")
    await expect(page.waiting).to_contain_text("vLLM is paused")
    await expect(depth(page.page, "waiting")).to_have_text("1")
    await step(page.page)
    await step(page.page)
    await expect(page.page.locator("#chat-meta")).to_contain_text("decoding, nothing delivered yet")
    await resume(page.page)
    await expect(page.send).to_be_enabled(timeout=PATIENCE)
    await expect(page.answers).not_to_be_empty()
    await expect(page.page.locator("#chat-meta")).to_contain_text("all tokens at once after")
