"""What each lesson's picture must draw, computed again from the records of its run as they lie in the trace
files: its bars, each with its parts.

Plain JSON and first principles: nothing of the app's own code is used here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import takewhile, zip_longest

from tests.lesson_values import (
    Record,
    Trace,
    beyond_one_machine,
    lines_of_code,
    reserving_against_blocks,
    tokens_in,
    why_so_much_memory,
)

Bars = list[list[float]]


def tokens_of(steps: Iterable[Record]) -> list[int]:
    return [tokens_in(step["rows"]) for step in steps]


# One function a lesson; each gets what the function of the same name in lesson_values.py gets.


def one_at_a_time(generate: Trace) -> Bars:
    _, _, *crowd = generate.requests
    waits = [(generate.queue_time(request), generate.e2e(request)) for request in crowd]
    return [[queued, until_last - queued] for queued, until_last in sorted(waits)]


def sse_on_the_wire(_: Trace, body: str) -> Bars:
    bars: Bars = []
    for line in body.splitlines():
        if line.startswith("data: "):
            text = len(json.loads(line.removeprefix("data: "))["token"].encode())
            bars.append([text, len(f"{line}\n\n".encode()) - text])
    return bars


def one_queue_per_request(per_call: Trace, _: Trace) -> Bars:
    slow, fast, *_others = per_call.requests
    until_fast_ends = takewhile(
        lambda record: record["type"] != "finished" or record["request_id"] != fast, per_call.records
    )
    depths = [record["streams"] for record in until_fast_ends if record["type"] == "queues"]
    return [[depth[slow], depth[fast]] for depth in depths if slow in depth and fast in depth]


def shape_of_a_batch(naive: Trace) -> Bars:
    longest = [max(row["num_scheduled_tokens"] for row in step["rows"]) for step in naive.steps()]
    return [[length] for length in longest]


def no_cache(naive: Trace, paged: Trace) -> Bars:
    both = zip_longest(tokens_of(naive.steps()), tokens_of(paged.steps()), fillvalue=0)
    return [list(bar) for bar in both]


def padding(naive: Trace) -> Bars:
    lengths = [row["num_scheduled_tokens"] for row in naive.steps()[0]["rows"]]
    return [[length, max(lengths) - length] for length in lengths]


def static_against_continuous(generate: Trace, _: Trace) -> Bars:
    phases = [[row["phase"] for row in step["rows"]] for step in generate.steps()]
    return [[len(rows) - rows.count("finished"), rows.count("finished")] for rows in phases]


def of_slots(generate: Trace, paged: Trace) -> Bars:
    values = reserving_against_blocks(generate, paged)
    filled = [values["reserved_filled"], values["blocks_filled"]]
    slots = [values["reserved_slots"], values["blocks_slots"]]
    return [[some, all_of_them - some] for some, all_of_them in zip(filled, slots, strict=True)]


def prefix_caching(paged: Trace) -> Bars:
    first_rows = [paged.rows(request)[0] for request in paged.requests]
    return [[row["num_cached_tokens"], row["num_scheduled_tokens"]] for row in first_rows]


def running_out(paged: Trace) -> Bars:
    """Block by block: what was taken and not given back. Who is preempted gives back before the step, who
    ends after it."""
    tables: dict[str, set[int]] = {request: set() for request in paged.requests}
    bars: Bars = []
    for step in paged.steps():
        taken, given_back = step["kv"].get("taken", {}), step["kv"].get("given_back", {})
        for request in step.get("preempted_ids", []):
            tables[request] -= set(given_back[request])
        for request, blocks in taken.items():
            tables[request] |= set(blocks)
        bars.append([len(table) for table in tables.values()])
        for request in step.get("finished_ids", []):
            tables[request] -= set(given_back[request])
    assert not any(tables.values()), "all of them are back"
    return bars


def long_prefill(*traces: Trace) -> Bars:
    durations = []
    for trace in traces:
        *decoding, _ = trace.requests
        durations.append([step["duration"] for step in trace.steps(*decoding)])
    return [list(bar) for bar in zip_longest(*durations, fillvalue=0)]


def of_lines() -> Bars:
    values = lines_of_code()
    parts = ("workload_manager", "model_executor", "model_worker", "engine", "messages")
    return [[values[part]] for part in parts]


def blocking_against_async(engine: Trace) -> Bars:
    in_turn, at_once = engine.steps(*engine.requests[:4]), engine.steps(*engine.requests[4:])
    return [[len(step["rows"]), 0] for step in in_turn] + [[0, len(step["rows"])] for step in at_once]


def of_memory() -> Bars:
    values = why_so_much_memory()
    return [[values["weights"], values["cache"], 0.75, 0.1 * 24]]


def of_rates(first: Trace, second: Trace) -> Bars:
    values = beyond_one_machine(first, second)
    return [[values["one_rate"]], [values["two_rate"]]]


PICTURES: dict[str, Callable[..., Bars]] = {
    "one-at-a-time": one_at_a_time,
    "sse-on-the-wire": sse_on_the_wire,
    "one-queue-per-request": one_queue_per_request,
    "shape-of-a-batch": shape_of_a_batch,
    "no-cache": no_cache,
    "padding": padding,
    "static-against-continuous": static_against_continuous,
    "reserving-against-blocks": of_slots,
    "prefix-caching": prefix_caching,
    "running-out": running_out,
    "long-prefill": long_prefill,
    "lines-of-code": of_lines,
    "blocking-against-async": blocking_against_async,
    "why-so-much-memory": of_memory,
    "beyond-one-machine": of_rates,
}
"""Every lesson but the second, which has none."""
