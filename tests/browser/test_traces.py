"""A recording of an engine, replayed where there is none: the panels end as the live ones did, a link
shows the same step every time, and a page saved from it needs no server at all."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect
from pytest_asyncio import fixture

from backends.archive import Archive
from backends.shelf import Shelf, read_recordings
from tests.browser.reducer_state import live_state, replayed_state, say_the_same
from tests.browser.site import SETTINGS, Complaints, serving
from tests.fakes import FakeBackend

NAME = "run <img src=x onerror=alert(1)>"
"""Of a file: hostile, as a stranger's may be."""
HOSTILE = "</script><script>alert(1)</script>"
VIEWPORT = {"width": 1280, "height": 720}

PICTURES = "[...document.querySelectorAll('#replay canvas')].map((canvas) => canvas.toDataURL())"


class Live(NamedTuple):
    """The page of an engine that has done its work, and the recording of it."""

    page: Page
    state: dict[str, Any]
    trace: bytes


async def drawn(page: Page) -> None:
    """Two frames with nothing new, and the chart there."""
    await page.locator(".js-plotly-plot .main-svg").first.wait_for(state="attached")
    pictures = None
    async with asyncio.timeout(20):
        while pictures != (pictures := await page.evaluate(PICTURES)):
            await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")


@fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser) -> AsyncIterator[BrowserContext]:
    """Pages share its cache, which saves seconds a test."""
    context = await browser.new_context(viewport=VIEWPORT, locale="en-US")
    yield context
    await context.close()


@fixture(scope="module", loop_scope="session")
async def live(visitor: BrowserContext) -> AsyncIterator[Live]:
    engine = FakeBackend("naive", settings=SETTINGS, step_seconds=0.03)
    async with serving({"naive": engine}) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
        page = await visitor.new_page()
        await page.goto(url)
        await page.wait_for_function("window.servescope?.store?.connection.phase === 'open'")
        lengths = (12, 20, 5, 9, 16, 3)
        await asyncio.gather(
            *(client.post("generate_stream", json={"prompt": "a b c", "max_tokens": n}) for n in lengths)
        )
        await page.wait_for_function(
            f"window.servescope.store.state.totals.requests_finished === {len(lengths)}"
        )
        state = await live_state(page)
        trace = (await client.get("telemetry/naive/trace?packed=true")).content
        yield Live(page, state, trace)
        await page.close()
    await engine.stop()


@fixture(scope="module", loop_scope="session")
async def recording(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, with a model whose name is an attack."""
    path = tmp_path_factory.mktemp("traces") / f"{NAME}.jsonl.gz"
    lines = gzip.decompress(live.trace).replace(b'"scripted words"', json.dumps(HOSTILE).encode())
    path.write_bytes(gzip.compress(lines))
    return path


@fixture(scope="module", loop_scope="session")
async def address(recording: Path) -> AsyncIterator[str]:
    """A server that has the recording and no engine."""
    async with serving({}, Shelf(read_recordings([str(recording)]))) as url:
        yield url


@fixture(loop_scope="session")
async def page(visitor: BrowserContext, address: str) -> AsyncIterator[Page]:
    """Nothing in it complains, and nothing hostile ran."""
    page = await visitor.new_page()
    complaints = Complaints(address)
    complaints.listen(page)
    page.on("dialog", lambda dialog: complaints.seen.append(f"dialog: {dialog.message}"))
    yield page
    assert complaints.seen == []
    await page.close()


async def open_replay(page: Page, address: str) -> None:
    await page.goto(address)
    await page.locator("#replay-transport").wait_for()


async def look_at(page: Page, step: int) -> None:
    await page.locator("#replay .scope-slider").fill(str(step))
    await expect(page.locator("#replay .scope-position")).to_contain_text(f"step {step} of")


async def test_a_recording_ends_as_the_live_page_did_without_any_engine(
    page: Page, address: str, live: Live
) -> None:
    await open_replay(page, address)
    await expect(page.locator("#page-tabs a")).to_have_text(["Traces"])
    await expect(page.locator(".traces-what h2")).to_have_text(NAME)
    await expect(page.locator(".traces-badge")).to_have_text("Recording")
    await expect(page.locator(".traces-what p").first).to_contain_text(HOSTILE)

    state = await replayed_state(page)
    state["header"]["model"] = live.state["header"]["model"]
    assert state == live.state
    await live.page.bring_to_front()  # what is hidden is not drawn
    await say_the_same(page, live.page)


async def test_a_link_shows_the_same_step_and_scrubbing_there_as_well(page: Page, address: str) -> None:
    await open_replay(page, address + "?view=panels&theme=dark&step=10")
    await expect(page.locator("#replay .scope-position")).to_contain_text("step 10 of")
    await drawn(page)
    pictures = await page.evaluate(PICTURES)

    await page.reload()
    await drawn(page)
    assert await page.evaluate(PICTURES) == pictures

    await look_at(page, 3)
    await drawn(page)
    assert await page.evaluate(PICTURES) != pictures
    await look_at(page, 10)
    await drawn(page)
    assert await page.evaluate(PICTURES) == pictures
    await page.wait_for_url("**&step=10&trace=*")


async def test_it_plays_to_its_end_and_goes_step_by_step_with_keys(page: Page, address: str) -> None:
    await open_replay(page, address + "?step=0")
    position = page.locator("#replay .scope-position")
    await page.keyboard.press("ArrowRight")
    await expect(position).to_contain_text("step 1 of")
    await page.locator("#replay [data-action=speed]").select_option("16")
    await page.locator("#replay [data-action=play]").click()
    last = (await position.text_content() or "").split()[-1]
    await expect(position).to_contain_text(f"step {last} of {last}")
    await expect(page.locator("#replay [data-action=play]")).to_contain_text("Play")


async def test_a_page_saved_from_it_needs_no_server(
    page: Page, browser: Browser, address: str, tmp_path: Path
) -> None:
    await open_replay(page, address)
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Save as a page").click()
    saved = tmp_path / "saved.html"
    await (await downloading.value).save_as(saved)
    await page.goto(address + "?view=panels&step=10")
    await drawn(page)
    pictures = await page.evaluate(PICTURES)

    context = await browser.new_context(viewport=VIEWPORT, locale="en-US", offline=True)
    alone = await context.new_page()
    complaints = Complaints(saved.as_uri())
    complaints.listen(alone)
    alone.on("dialog", lambda dialog: complaints.seen.append(f"dialog: {dialog.message}"))
    await alone.goto(saved.as_uri() + "?view=panels")
    await alone.locator("#replay-transport").wait_for()
    await expect(alone.locator(".traces-what p").first).to_contain_text(HOSTILE)
    await look_at(alone, 10)
    await drawn(alone)
    assert await alone.evaluate(PICTURES) == pictures
    assert complaints.seen == []
    await context.close()


async def test_a_file_from_here_is_read_here_and_a_bad_one_is_refused_with_its_line(
    page: Page, address: str, recording: Path, live: Live
) -> None:
    await open_replay(page, address)
    choose = page.locator(".traces-file input")
    lines = gzip.decompress(recording.read_bytes()).splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"type":"', b'"type":"<b>not a ')
    status = page.locator(".traces-status")
    await choose.set_input_files({"name": "bad.jsonl", "mimeType": "", "buffer": b"".join(lines)})
    await expect(status).to_contain_text("bad.jsonl is no recording. Line 5: <b>not a ")
    await expect(page.locator(".traces-what h2")).to_have_text(NAME)

    cut = {"name": "cut.jsonl.gz", "mimeType": "", "buffer": live.trace[:-20]}
    await choose.set_input_files(cut)
    await expect(status).to_contain_text("cut off or damaged")

    sent: list[str] = []
    page.on("request", lambda request: sent.append(f"{request.method} {request.post_data or ''}"))
    await choose.set_input_files({"name": "good.jsonl.gz", "mimeType": "", "buffer": live.trace})
    await expect(page.locator(".traces-what h2")).to_have_text("good.jsonl.gz")
    await expect(status).to_be_hidden()
    assert set(sent) <= {"GET "}, "its icon perhaps, but nothing of the file"
    assert "trace=" not in page.url


async def test_an_engine_whose_records_cannot_be_written_says_so_beside_its_name(
    visitor: BrowserContext, tmp_path: Path
) -> None:
    engine = FakeBackend("naive", settings=SETTINGS)
    archive = Archive(tmp_path / "gone", [engine.recorder])
    async with serving({"naive": engine}, archive=archive) as url, asyncio.timeout(20):
        await engine.start()
        while archive.problem("naive") is None:
            await asyncio.sleep(0.01)  # it writes in a thread of its own, which tells nobody
        page = await visitor.new_page()
        await page.goto(f"{url}?tab=traces")
        told = page.get_by_text("Its records are not being written: No such file or directory")
        await expect(told).to_be_visible()
        await page.close()
    await engine.stop()
