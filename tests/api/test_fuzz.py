"""Every route, asked with what its own description allows and with what it does not: no server error, and
an answer in time.

The routes are those of ``/openapi.json``. Gradio's own, under the page, are not in it: what they take are the
page's events, which ``tests/api/test_privacy.py`` and the tests of the browser send.

    FUZZ_EXAMPLES=300 python -m pytest tests/api/test_fuzz.py -s     by hand: more, and others each time
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from backends import model_config
from backends.base import ControlAction
from backends.lessons.lesson import slugs
from backends.settings import Settings
from tests.api.serving import Served, serving
from tests.fakes import FakeBackend
from tests.fuzzing import fuzzing

FUZZING = fuzzing(20)
"""Examples of a route, as its description has it and as it does not each."""
RUNS = "POST /lessons/{slug}/runs"
"""Asked late: only the last runs are kept, and the one that is known is asked for."""
PATIENCE = 20
"""Seconds for an answer; what an engine of these tests is asked takes milliseconds."""


HEADERS = st.just({}) | st.fixed_dictionaries(
    {},
    optional={
        "Origin": st.sampled_from(
            ["http://[", "null", "http://a:b", "http://127.0.0.1:x", "//", "http://\x80"]
        ),
        "Authorization": st.sampled_from(["Bearer", "Bearer \xff", "Basic x", "Bearer a b c"]),
        "X-Forwarded-Host": st.sampled_from(["[", "a:b", "\xff"]),
        "X-Forwarded-For": st.sampled_from(["::1%x", ",", "999.1.1.1"]),
        "Accept-Encoding": st.sampled_from(["gzip;q=x", "*", "\xff"]),
        "Range": st.sampled_from(["bytes=5-1", "bytes=-", "bytes=0-0,0-0", "x"]),
        "Content-Type": st.sampled_from(
            ["application/json; charset=\xff", "application/json;", "/", "text/plain"]
        ),
    },
)
"""What the description does not speak of, and a client can send all the same."""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# What is served stands first in these and is drawn as often as all else: what Hypothesis tries changes with
# every constant in our source, and a route must be asked something that it serves all the same.
WORKLOADS = st.just({"students": 1, "output_tokens": [2]}) | st.fixed_dictionaries(
    {"students": st.integers(1, 3)},
    optional={
        "arrivals": st.sampled_from(["burst", "uniform", "poisson"]) | JSON_VALUES,
        "window": st.floats(0, 0.1) | JSON_VALUES,
        "prompt_words": st.lists(st.integers(0, 5), min_size=2, max_size=2) | JSON_VALUES,
        "shared_words": st.integers(0, 5) | JSON_VALUES,
        "output_tokens": st.lists(st.integers(0, 5), max_size=3) | JSON_VALUES,
        "seed": JSON_VALUES,
    },
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A model's ``config.json`` with some of its fields replaced or taken away."""
    config = dict(draw(st.sampled_from(list(model_config.EXAMPLES.values()))))
    for key in draw(st.lists(st.sampled_from([*config, "num_key_value_heads", "head_dim"]), max_size=3)):
        config.pop(key, None)
        if draw(st.booleans()):
            config[key] = draw(JSON_VALUES)
    return config


class Known:
    """Values that mean something to a server: without them most guesses would end at its edge."""

    def __init__(self, **values: st.SearchStrategy[Any]) -> None:
        self._values = values

    def put_into(self, given: Any, choose: Any, *, everywhere: bool) -> None:
        """Into fields of these names, however deep: all of them, or each as often as not."""
        if isinstance(given, dict):
            for key, value in given.items():
                if key in self._values and (everywhere or choose.draw(st.booleans())):
                    given[key] = choose.draw(self._values[key])
                else:
                    self.put_into(value, choose, everywhere=everywhere)
        elif isinstance(given, list):
            for value in given:
                self.put_into(value, choose, everywhere=everywhere)


async def what_there_is(server: Served, client: httpx.AsyncClient) -> Known:
    """A race and an experiment that were run, beside the names of engines, lessons and recordings."""
    race = {"workload": {"students": 1, "output_tokens": [2]}, "entries": [{"backend": "naive"}]}
    begun = await client.post("/workloads/races", json=race)
    run = await client.post("/lessons/shape-of-a-batch/runs", json={"visitor": "ada"})
    run_id = run.text.partition('{"run": "')[2].partition('"')[0]
    assert run_id, run.text
    recordings = (await client.get("/traces")).json()["recordings"]
    one_of = st.sampled_from
    return Known(
        backend=one_of(list(server.backends)),
        engine=one_of(list(server.backends)),
        model=one_of(list(server.backends)),
        action=one_of(list(ControlAction)),
        slug=st.just("shape-of-a-batch") | one_of(slugs()),
        lang=st.just("ko"),
        name=one_of([recording["name"] for recording in recordings[:3]]),
        symbol=one_of(
            ["app.py", "backends/gate.py::Gate.turn", "assets/js/main.js::x", "app.py::" + "." * 200]
        ),
        link=one_of([f"http://{server.address}/?tab=classroom", "http://[", "https://a@b:c/"]),
        race_id=st.just(begun.json()["race_id"]),
        run_id=st.just(run_id),
        workload=WORKLOADS,
        entries=st.just([{"backend": "naive"}])
        | st.lists(st.fixed_dictionaries({"backend": one_of(list(server.backends))}), max_size=2),
        prompt=st.just("one two"),
        max_tokens=st.integers(1, 3),
    )


async def test_no_route_fails_or_hangs_whatever_it_is_asked() -> None:
    """Engines are put back after each answer, since pausing and killing them is among what is asked."""
    vllm = FakeBackend(
        "vllm", modes=("async", "blocking"), supported=frozenset({"top_p", "top_k", "seed", "n"})
    )
    async with serving(FakeBackend("naive"), vllm, settings=Settings(max_model_len=64)) as server:
        async with server.client() as client:
            known = await what_there_is(server, client)
            schema = schemathesis.openapi.from_dict((await client.get("/openapi.json")).json())
        statuses = await asyncio.to_thread(ask_everything, schema, server, known)
    for label, counted in statuses.items():
        print(f"{label:45}", dict(sorted(counted.items())))
    print(f"{len(statuses)} routes, {sum(counted.total() for counted in statuses.values()):,} requests")
    never_served = {label for label, counted in statuses.items() if min(counted) >= 300}
    assert never_served <= {"DELETE /lessons/runs/{run_id}"}  # the run that is known has ended


def ask_everything(schema: Any, server: Served, known: Known) -> dict[str, Counter[int]]:
    """Status → how often, for each route."""
    statuses: dict[str, Counter[int]] = {}
    operations = [result.ok() for result in schema.get_all_operations()]
    with requests.Session() as session:
        session.trust_env = False
        for operation in sorted(operations, key=lambda one: (one.method == "delete", one.label == RUNS)):
            statuses[operation.label] = Counter(ask(operation, server, known, session))
    return statuses


def is_said(response: schemathesis.Response) -> bool:
    """An engine that does not run is a 503 in our own words."""
    return response.status_code == 503 and response.json()["error"]["code"] in (
        "engine_unavailable",
        "engine_died",
    )


def ask(operation: Any, server: Served, known: Known, session: requests.Session) -> Iterator[int]:
    got: list[int] = []
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @settings(FUZZING, max_examples=2 * FUZZING.max_examples)
    @given(case=cases, headers=HEADERS, choose=st.data())
    def one(case: schemathesis.Case, headers: dict[str, str], choose: Any) -> None:
        everywhere = choose.draw(st.booleans())
        for part in (case.path_parameters, case.query, case.body):
            known.put_into(part, choose, everywhere=everywhere)
        if operation.path == "/sizing/config" and choose.draw(st.booleans()):
            case.body = choose.draw(configs())
        response = case.call(f"http://{server.address}", session=session, headers=headers, timeout=PATIENCE)
        assert response.status_code < 500 or is_said(response), case.as_curl_command()
        got.append(response.status_code)
        for engine in server.backends.values():
            engine.gate.resume()
            engine.gate.set_delay(0)

    one()
    yield from got
