from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from backends.registry import Registry
from backends.settings import Settings
from backends.visitors import Visitors
from components.conversation import log_from_browser
from components.layout import TABS, create_page, mount_page
from tests.fakes import FakeBackend

T = TypeVar("T")


def registry() -> Registry:
    return Registry({"naive": lambda: FakeBackend("naive"), "generate": lambda: FakeBackend("generate")})


def unheard(*_: object) -> None:
    """Nobody counts what fails."""


def page() -> gr.Blocks:
    return in_a_loop(lambda: create_page(registry(), Settings(), Visitors(Settings()), unheard))


def in_a_loop(build: Callable[[], T]) -> T:
    """Outside of a running event loop Gradio makes some of its own and never closes them."""

    async def run() -> T:
        return build()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return page().get_config_file()


@pytest.fixture(scope="module")
def client() -> TestClient:
    settings = Settings()
    return TestClient(
        in_a_loop(lambda: mount_page(FastAPI(), registry(), settings, Visitors(settings), unheard))
    )


def test_a_page_holds_no_connection_open(config: dict[str, Any]) -> None:
    assert config["connect_heartbeat"] is False


def test_no_event_of_the_page_is_a_public_api(config: dict[str, Any]) -> None:
    visibilities = {dependency["api_visibility"] for dependency in config["dependencies"]}
    assert visibilities == {"private"}


def test_an_engine_refuses_before_gradio_lets_anyone_wait() -> None:
    blocks = page()
    assert blocks._queue.max_thread_count > Settings().max_waiting
    limits = {event.concurrency_limit for event in blocks.fns.values() if event.queue and event.fn}
    assert limits == {None}


def test_the_log_builds_no_component_that_a_browser_names() -> None:
    blocks = page()
    (log,) = [block for block in blocks.blocks.values() if block.elem_id == "chat-log"]
    assert log.preprocess is log_from_browser


def test_every_element_that_others_rely_on_has_its_id(config: dict[str, Any]) -> None:
    ids = {component["props"].get("elem_id") for component in config["components"]}
    wanted = {"backend-choice", "chat-log", "chat-input", "chat-send", "chat-stop"}
    assert wanted | {f"tab-{tab.name}" for tab in TABS} <= ids


def test_our_files_and_gradios_lie_under_one_path(client: TestClient) -> None:
    ours = client.get("/assets/css/page.css")
    assert ours.status_code == 200
    assert ours.headers["cache-control"] == "no-cache"
    script = client.get("/").text.split('src="./assets/', 1)[1].split('"', 1)[0]
    assert client.get(f"/assets/{script}").status_code == 200


def test_a_path_out_of_the_assets_leads_nowhere(client: TestClient) -> None:
    assert client.get("/assets/css/..%2f..%2fapp.py").status_code == 404


def test_plotly_comes_from_the_installed_package(client: TestClient) -> None:
    script = client.get("/vendor/plotly.min.js")
    assert script.status_code == 200
    assert script.headers["content-type"].startswith("text/javascript")
    assert "plotly.js v" in script.text[:500]
    again = client.get("/vendor/plotly.min.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304


def test_plotly_is_sent_small_to_who_can_unpack_it(client: TestClient) -> None:
    small = client.get("/vendor/plotly.min.js", headers={"accept-encoding": "gzip"})
    plain = client.get("/vendor/plotly.min.js", headers={"accept-encoding": "identity"})
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert small.content == plain.content


def test_nobody_can_leave_a_file_here(client: TestClient) -> None:
    response = client.post("/gradio_api/upload", files={"files": ("big.txt", b"x" * 1000)})
    assert response.status_code >= 400
