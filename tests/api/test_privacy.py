"""What one visitor writes and is answered reaches no other, wherever the other one looks.

Ada chats, on the page and over HTTP, races, and runs an experiment. Ben reads every route there is, his own
event streams and every feed, before, during and after. Not one of Ada's words or secret ids may be in a byte
that is sent to him. The routes are walked, Gradio's with them, so a new one is read too.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from app import ENGINES
from backends.logs import EventFormatter
from backends.records import RequestArrived, RequestFinished
from backends.settings import Settings
from tests.api.place import Place, place
from tests.api.serving import recorded
from tests.fakes import FakeBackend

KEY = "correct horse battery"
WORD, SALT, VISITOR, SESSION = "apricot7f3a9c41", "salt5b21d7", "adas-page-93d1", "adasession"
PROMPT = f'My <b>code</b> is "{WORD}", ünlike {{{{{WORD}}}}}'
ENDLESS = ("heartbeat", "queue/data", "dev/reload", "upload_progress")
"""Streams that go on until the reader leaves."""
BENS = {
    "backend": "naive",
    "model": "naive",
    "action": "resume",
    "slug": "streaming",
    "name": "naive-padding",
    "symbol": "app.py",
    "session_hash": "bensession",
    "api_name": "send",
    "upload_id": "bens",
}
"""What Ben fills in where a route wants something."""


@dataclass
class Received:
    """All that one visitor was sent: where, and the bytes in lower case, headers with them."""

    parts: list[tuple[str, bytes]] = field(default_factory=list)
    text: str = ""

    def add(self, where: str, content: bytes | str) -> None:
        content = content.encode() if isinstance(content, str) else content
        self.text += content.decode(errors="replace")
        self.parts.append((where, content.lower()))

    def with_any_of(self, *secrets: str) -> list[tuple[str, str]]:
        return [
            (where, secret)
            for where, content in self.parts
            for secret in secrets
            if any(form in content for form in forms_of(secret))
        ]


def forms_of(secret: str) -> Iterator[bytes]:
    """How text of ASCII could be hidden in bytes; in JSON, HTML and addresses it stands as it is."""
    plain = secret.encode()
    yield plain.lower()
    yield plain.hex().encode()
    yield secret.lower().encode("utf-16-le")
    yield plain[::-1].lower()
    for shift in range(3):  # base64 of a text that has it at any place
        yield base64.b64encode(b"\0" * shift + plain)[4 if shift else 0 : -4].lower()


# Ada


async def join(client: httpx.AsyncClient, session: str, text: str, visitor: str, backend: str) -> None:
    """Press Send on the page."""
    config = (await client.get("/config")).json()
    event = next(event for event in config["dependencies"] if event["api_name"] == "send")
    values = {part["id"]: part["props"].get("value") for part in config["components"]}
    names = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    values |= {names["chat-input"]: text, names["chat-log"]: [], names["backend-choice"]: backend}
    values[names["settings-system-prompt"]] = f"You know {text}"
    data = [values[part] for part in event["inputs"][:-1]]
    told = {"lang": "en", "visitor": visitor}
    body = {"data": [*data, told], "fn_index": event["id"], "session_hash": session}
    (await client.post("/gradio_api/queue/join", json=body)).raise_for_status()


async def read_events(client: httpx.AsyncClient, session: str, to: Received) -> None:
    """A page's own event stream, until its answer is whole."""
    async with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as events:
        async for part in events.aiter_bytes():
            to.add(f"events of {session}", part)
            if b'"process_completed"' in part:
                return


async def ask_over_http(client: httpx.AsyncClient, to: Received) -> None:
    """All at once; the engine's answers, and what is refused with her words in it."""
    headers = {"Servescope-Visitor": VISITOR}
    messages = [{"role": "user", "content": PROMPT}]
    openai = {"model": "naive", "cache_salt": SALT, "user": WORD, "metadata": {"a": WORD}, "max_tokens": 9}
    race = {"workload": {"students": 1, "output_tokens": [3]}, "entries": [{"backend": "generate"}]}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/generate_stream", {"prompt": PROMPT}),
        ("/generate", {"prompt": PROMPT, WORD: WORD}),
        (f"/generate?backend={WORD}", {"prompt": PROMPT}),
        ("/v1/chat/completions", openai | {"messages": messages, "stream": True}),
        ("/v1/completions", openai | {"prompt": PROMPT * 100}),
        ("/workloads/races", race | {"visitor": VISITOR}),
        ("/lessons/shape-of-a-batch/runs", {"visitor": VISITOR}),
        ("/sizing/config", {"_name_or_path": WORD, "architectures": [WORD]}),
    ]
    posts = (client.post(path, json=body, headers=headers) for path, body in bodies)
    for answer in await asyncio.gather(*posts):
        to.add(str(answer.url), answer.content)
    for path in ("/code?symbol=", "/qr.svg?link=", "/traces/", "/lessons/", "/v1/models/"):
        to.add(path, (await client.get(path + quote(PROMPT, safe=""))).content)


# Ben


async def read_everything(place: Place, client: httpx.AsyncClient, to: Received) -> None:
    """Every route of every method, with what he has to fill in."""
    for method, path in place.routes:
        if any(name in path for name in ENDLESS):
            continue
        filled = re.sub(r"\{(\w+)(:path)?\}", lambda name: BENS.get(name[1], "x"), path)
        options: dict[str, Any] = {"json": {}} if method == "POST" else {"params": BENS}
        with suppress(httpx.RemoteProtocolError):  # some of Gradio's break off at a session that is none
            async with client.stream(method, filled, **options) as answer:
                to.add(f"{method} {path}", repr(answer.headers.multi_items()))
                async for part in answer.aiter_bytes():
                    to.add(f"{method} {path}", part)
    for query in ("", "?packed=true"):
        for name in ("naive", "generate"):
            to.add("a trace", (await client.get(f"/telemetry/{name}/trace{query}")).content)


async def listen(place: Place, client: httpx.AsyncClient, path: str, to: Received) -> None:
    path = path.replace("{session_hash}", BENS["session_hash"])
    with suppress(httpx.HTTPError):  # the server ends it with the test
        async with client.stream("GET", path, params=BENS) as response:
            async for part in response.aiter_bytes():
                to.add(path, part)


async def watch(place: Place, backend: str, to: Received) -> None:
    url = f"ws://{place.address}/telemetry?backend={backend}&visitor=bens-page"
    with suppress(ConnectionClosed):
        async with connect(url, proxy=None) as feed:
            async for frame in feed:
                to.add(f"the feed of {backend}", frame)


async def meddle(client: httpx.AsyncClient, to: Received) -> None:
    """While Ada is answered; where a key is needed he is refused."""
    for action in ("pause", "step", "resume", "kill-worker", "restart"):
        answer = await client.post(f"/control/naive/{action}")
        to.add(f"control {action}", answer.content)


@pytest.fixture
def _experiments_on_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "naive", lambda settings: FakeBackend("naive", settings=settings))


@pytest.mark.usefixtures("_experiments_on_fakes")
@pytest.mark.parametrize("public", [False, True])
async def test_no_word_and_no_secret_id_of_a_visitor_is_in_any_byte_sent_to_another(public: bool) -> None:
    settings = Settings(
        max_model_len=200, max_tokens=64, public=public, instructor_key=KEY if public else None
    )
    adas, bens = Received(), Received()
    naive = FakeBackend("naive", settings=settings, script=lambda index: (" the", f" {WORD}")[index % 2])
    engines = naive, FakeBackend("generate", settings=settings)
    async with place(settings, *engines) as here, here.client() as ada, here.client() as ben:
        endless = [path for _, path in here.routes if any(name in path for name in ENDLESS)]
        reading = [asyncio.create_task(listen(here, ben, path, bens)) for path in endless]
        reading += [asyncio.create_task(watch(here, name, bens)) for name in ("naive", "generate")]

        await naive.start()
        naive.gate.pause()
        await join(ada, SESSION, PROMPT, VISITOR, "naive")
        asking = asyncio.gather(read_events(ada, SESSION, adas), ask_over_http(ada, adas))
        await recorded(naive.recorder, RequestArrived, 3)
        await read_everything(here, ben, bens)  # while she waits; among it he lets the engine go on
        naive.gate.resume()
        await asking
        await recorded(naive.recorder, RequestFinished, 3)

        await join(ben, "bensession", "Hello", "bens-page", "generate")
        await read_events(ben, "bensession", bens)
        dying = asyncio.gather(
            ada.post("/generate_stream", json={"prompt": PROMPT, "max_tokens": 64}), return_exceptions=True
        )
        await meddle(ben, bens)
        await dying
        await read_everything(here, ben, bens)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    race_id, run_id = ids_in(adas)
    assert adas.with_any_of(WORD), "her answers do have it"
    assert bens.with_any_of(b'"type":"token"'.decode()), "he does see her engine's records"
    assert bens.with_any_of(WORD, SALT, VISITOR, SESSION, race_id, run_id) == []
    print(f"{len(bens.parts):,} parts, {sum(len(content) for _, content in bens.parts):,} bytes")


async def test_an_event_of_the_page_that_fails_is_logged_with_its_place_and_without_a_word_of_the_visitor(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """With too few values, at which Gradio repeats all that it was given; and with a choice that is none."""
    received = Received()
    async with place(Settings(), FakeBackend("naive")) as here, here.client() as ada:
        config = (await ada.get("/config")).json()
        event = next(event for event in config["dependencies"] if event["api_name"] == "send")
        for data in ([WORD], [WORD] * len(event["inputs"])):
            body = {"data": data, "fn_index": event["id"], "session_hash": SESSION}
            (await ada.post("/gradio_api/queue/join", json=body)).raise_for_status()
            await read_events(ada, SESSION, received)

    assert received.text.count('"success":false') == 2
    failed = [record for record in caplog.records if record.msg == "page_failed"]
    assert len(failed) == 2
    for record in failed:
        assert "gradio" in record.fields["where"]  # type: ignore[attr-defined]
    assert WORD not in "".join(capfd.readouterr())
    assert WORD not in "".join(EventFormatter("json").format(record) for record in caplog.records)


def ids_in(received: Received) -> tuple[str, str]:
    """Of her race and of her experiment, which cannot be guessed."""
    text = received.text
    race_id, run_id = (re.search(rf'"{name}": ?"([^"]{{16,}})"', text) for name in ("race_id", "run"))
    assert race_id
    assert run_id
    return race_id[1], run_id[1]
