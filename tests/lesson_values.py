"""What each lesson must show, computed again from the records of its run as they lie in the trace files.

Plain JSON and first principles: nothing of the app's own code is used here.
"""

from __future__ import annotations

import ast
import json
import statistics
from collections.abc import Callable, Iterable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30

Record = dict[str, Any]
Values = dict[str, Any]


class Trace:
    """The records of one engine."""

    def __init__(self, lines: str) -> None:
        self.header, *self.records = (json.loads(line) for line in lines.splitlines())
        assert self.header["type"] == "header"
        assert "snapshot" not in {record["type"] for record in self.records}, "nothing was dropped"
        self.requests = [record["request_id"] for record in self.of("arrived")]
        """In order of arrival."""

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["type"] == kind]

    def arrived(self, request: str) -> Record:
        [found] = (record for record in self.of("arrived") if record["request_id"] == request)
        return found

    def steps(self, *requests: str) -> list[Record]:
        """Those that have a row of one of these requests; all of them, where none is named."""
        wanted = set(requests or self.requests)
        return [step for step in self.of("step") if wanted & {row["request_id"] for row in step["rows"]}]

    def rows(self, *requests: str) -> list[Record]:
        """The same, row by row."""
        wanted = set(requests or self.requests)
        return [row for step in self.of("step") for row in step["rows"] if row["request_id"] in wanted]

    def token_times(self, request: str) -> list[float]:
        return [token["time"] for token in self.of("token") if token["request_id"] == request]

    def ttft(self, request: str) -> float:
        return self.token_times(request)[0] - self.arrived(request)["time"]

    def e2e(self, request: str) -> float:
        return self.token_times(request)[-1] - self.arrived(request)["time"]

    def queue_time(self, request: str) -> float:
        return self.steps(request)[0]["start_time"] - self.arrived(request)["time"]

    def failed(self, requests: Iterable[str]) -> int:
        reasons = {record["request_id"]: record["reason"] for record in self.of("finished")}
        return sum(reasons[request] == "error" for request in requests)


def tokens_in(rows: Iterable[Record]) -> int:
    """That went through the model."""
    return sum(row["num_scheduled_tokens"] for row in rows)


def pairs_in(rows: Iterable[Record]) -> int:
    """Each token that is computed, against all that are there then."""
    return sum(
        row["num_scheduled_tokens"] * (row["num_computed_tokens"] + row["num_scheduled_tokens"])
        for row in rows
    )


def span(trace_of: dict[str, Trace]) -> float:
    """From the first arrival of these requests to the last token of theirs."""
    ends = [trace.token_times(request)[-1] for request, trace in trace_of.items()]
    return max(ends) - min(trace.arrived(request)["time"] for request, trace in trace_of.items())


# One function a lesson; each gets the traces of the engines that it ran on, in the order of their start.


def one_at_a_time(generate: Trace) -> Values:
    _, alone, *crowd = generate.requests  # the first warms the engine up
    waits = [generate.e2e(request) for request in crowd]
    return {
        "last_ratio": max(waits) / generate.e2e(alone),
        "alone": generate.e2e(alone),
        "crowd_first": min(waits),
        "crowd_last": max(waits),
        "last_queue": max(generate.queue_time(request) for request in crowd),
        "rows": max(len(step["rows"]) for step in generate.steps(*crowd)),
    }


def streaming(naive: Trace) -> Values:
    _, streamed, whole = naive.requests
    computed = [tokens_in(naive.rows(request)) for request in (streamed, whole)]
    return {
        "work": "same" if computed[0] == computed[1] else "less" if computed[0] < computed[1] else "more",
        "streamed_computed": computed[0],
        "whole_computed": computed[1],
        "streamed_first": naive.ttft(streamed),
        "whole_first": naive.ttft(whole),
        "streamed_last": naive.e2e(streamed),
        "whole_last": naive.e2e(whole),
    }


def sse_on_the_wire(naive: Trace, body: str) -> Values:
    """``body``: what the route sends for the same prompt, asked for once more."""
    frames = [f"{frame}\n\n" for frame in body.split("\n\n") if frame.startswith("data: ")]
    text = "".join(json.loads(frame.removeprefix("data: "))["token"] for frame in frames)
    [times] = [naive.token_times(request) for request in naive.requests]
    assert len(frames) == len(times)
    sent = len("".join(frames).encode())
    return {
        "ratio": sent / len(text.encode()),
        "frames": len(times),
        "sent": sent,
        "text": len(text.encode()),
        "parts": len(times),
        "first_to_last": times[-1] - times[0],
    }


def one_queue_per_request(per_call: Trace, shared: Trace) -> Values:
    slow, fast, *mixed = per_call.requests
    until_fast_ends = takewhile(
        lambda record: record["type"] != "finished" or record["request_id"] != fast, per_call.records
    )
    depths = [record["streams"] for record in until_fast_ends if record["type"] == "queues"]
    return {
        "slow_depth": max(depth[slow] for depth in depths),
        "fast_depth": max(depth[fast] for depth in depths),
        "asked": len(mixed),
        "shared_failed": shared.failed(shared.requests),
        "per_call_failed": per_call.failed(mixed),
    }


def shape_of_a_batch(naive: Trace) -> Values:
    shapes = [step["input_shape"] for step in naive.steps()]
    return {
        "last_width": shapes[-1][1],
        "first_width": shapes[0][1],
        "rows": shapes[0][0],
        "steps": len(shapes),
        "tokens_computed": tokens_in(naive.rows()),
        "tokens_made": len(naive.of("token")),
    }


def no_cache(naive: Trace, paged: Trace) -> Values:
    pairs = [pairs_in(trace.rows()) for trace in (naive, paged)]
    return {
        "tokens_naive": tokens_in(naive.rows()),
        "tokens_cached": tokens_in(paged.rows()),
        "pairs_naive": pairs[0],
        "pairs_cached": pairs[1],
        "pairs_ratio": pairs[0] / pairs[1],
        "last_step_naive": naive.steps()[-1]["duration"],
        "last_step_cached": paged.steps()[-1]["duration"],
    }


def padding(naive: Trace) -> Values:
    first = naive.steps()[0]
    rows, width = first["input_shape"]
    real = tokens_in(first["rows"])
    return {
        "padding": rows * width - real,
        "real": real,
        "positions": rows * width,
        "share": 1 - real / (rows * width),
    }


def static_against_continuous(generate: Trace, paged: Trace) -> Values:
    useful = [sum(row["phase"] != "finished" for row in trace.rows()) for trace in (generate, paged)]
    return {
        "useful": useful[0],
        "slots": len(generate.rows()),
        "useful_share": useful[0] / len(generate.rows()),
        "steps": len(generate.steps()),
        "continuous_rows": len(paged.rows()),
        "continuous_useful": useful[1],
    }


def reserving_against_blocks(generate: Trace, paged: Trace) -> Values:
    [reserved] = {slots for step in generate.steps() for slots in step["kv"]["reserved_slots"].values()}
    filled = [
        max(slots for step in trace.steps() for slots in step["kv"].get("filled_slots", {}).values())
        for trace in (generate, paged)
    ]
    taken = sum(len(blocks) for step in paged.steps() for blocks in step["kv"].get("taken", {}).values())
    in_blocks = taken * paged.header["engine"]["block_size"]
    return {
        "reserved_share": filled[0] / reserved,
        "reserved_filled": filled[0],
        "reserved_slots": reserved,
        "blocks_share": filled[1] / in_blocks,
        "blocks_filled": filled[1],
        "blocks_slots": in_blocks,
    }


def prefix_caching(paged: Trace) -> Values:
    first, second, third = (paged.rows(request)[0] for request in paged.requests)
    assert first["num_cached_tokens"] == 0
    return {
        "second_cached": second["num_cached_tokens"],
        "second_computed": second["num_scheduled_tokens"],
        "third_cached": third["num_cached_tokens"],
        "third_computed": third["num_scheduled_tokens"],
        "first_ttft": paged.ttft(paged.requests[0]),
        "second_ttft": paged.ttft(paged.requests[1]),
    }


def running_out(paged: Trace) -> Values:
    arrived = paged.of("arrived")
    preempted = [request for step in paged.steps() for request in step.get("preempted_ids", [])]
    computed = tokens_in(paged.rows())
    computed_once = sum(record["num_prompt_tokens"] + record["max_tokens"] - 1 for record in arrived)
    return {
        "steps": len(paged.steps()),
        "steps_alone": max(record["max_tokens"] for record in arrived),
        "preemptions": len(preempted),
        "preempted_requests": len(set(preempted)),
        "finished": len(paged.of("finished")),
        "recomputed_tokens": computed - computed_once,
        "tokens_computed": computed,
    }


def long_prefill(*traces: Trace) -> Values:
    values: Values = {}
    for name, trace in zip(("whole", "chunked"), traces, strict=True):
        *decoding, long_prompt = trace.requests
        gaps = [late - early for request in decoding for early, late in pairwise(trace.token_times(request))]
        values[f"{name}_gap"] = max(gaps)
        values[f"{name}_most"] = max(tokens_in(step["rows"]) for step in trace.steps(*decoding))
        values[f"{name}_steps"] = sum(row["phase"] == "prefill" for row in trace.rows(long_prompt))
        if name == "whole":
            values["usual_gap"] = statistics.median(gaps)
            values["whole_ratio"] = max(gaps) / statistics.median(gaps)
    return values


def lines_of_code() -> Values:
    counted = {path.stem: code_lines(path) for path in (ROOT / "backends" / "naive").glob("*.py")}
    source = (ROOT / "backends/vllm_async/sync_mode.py").read_text(encoding="utf-8")
    [node] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    parts = ("workload_manager", "model_executor", "model_worker", "engine", "messages")
    return {
        "naive": sum(counted.values()),
        **{part: counted[part] for part in parts},
        "blocking_call": (node.end_lineno or 0) - node.lineno + 1,
    }


def code_lines(path: Path) -> int:
    """Lines with code on them: neither blank, nor a comment, nor within a string that stands alone."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return sum(
        number not in docstrings and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(text.splitlines(), start=1)
    )


def blocking_against_async(engine: Trace) -> Values:
    in_turn, at_once = engine.steps(*engine.requests[:4]), engine.steps(*engine.requests[4:])
    return {
        "in_turn_steps": len(in_turn),
        "at_once_steps": len(at_once),
        "in_turn_rows": max(len(step["rows"]) for step in in_turn),
        "at_once_rows": max(len(step["rows"]) for step in at_once),
        "in_turn_time": sum(step["duration"] for step in in_turn),
        "at_once_time": sum(step["duration"] for step in at_once),
    }


def why_so_much_memory() -> Values:
    weights = 125_239_296 * 2
    cache = 0.9 * 24 * GIB - weights - 0.75 * GIB
    per_token = 2 * 12 * 12 * 64 * 2
    return {
        "reserved": 0.9 * 24,
        "weights": weights / GIB,
        "cache": cache / GIB,
        "per_token": per_token,
        "tokens": cache // per_token,
        "requests": cache // per_token // 16 // (2048 // 16),
    }


def beyond_one_machine(first: Trace, second: Trace) -> Values:
    alone, dealt, others = first.requests[1:9], first.requests[9:], second.requests[1:]
    assert (len(alone), len(dealt), len(others)) == (8, 4, 4)
    one = span(dict.fromkeys(alone, first))
    two = span(dict.fromkeys(dealt, first) | dict.fromkeys(others, second))
    made = sum(len(first.token_times(request)) for request in alone)
    return {
        "ratio": one / two,
        "one_rate": made / one,
        "two_rate": made / two,
        "one_time": one,
        "two_time": two,
    }


VALUES: dict[str, Callable[..., Values]] = {
    "one-at-a-time": one_at_a_time,
    "streaming": streaming,
    "sse-on-the-wire": sse_on_the_wire,
    "one-queue-per-request": one_queue_per_request,
    "shape-of-a-batch": shape_of_a_batch,
    "no-cache": no_cache,
    "padding": padding,
    "static-against-continuous": static_against_continuous,
    "reserving-against-blocks": reserving_against_blocks,
    "prefix-caching": prefix_caching,
    "running-out": running_out,
    "long-prefill": long_prefill,
    "lines-of-code": lines_of_code,
    "blocking-against-async": blocking_against_async,
    "why-so-much-memory": why_so_much_memory,
    "beyond-one-machine": beyond_one_machine,
}

ALWAYS: dict[str, Values] = {
    "one-at-a-time": {"rows": 1},
    "streaming": {"work": "same", "streamed_computed": sum(range(8, 20))},
    "sse-on-the-wire": {"frames": 12},
    "one-queue-per-request": {"fast_depth": 0, "asked": 6, "shared_failed": 6, "per_call_failed": 0},
    "shape-of-a-batch": {"last_width": 25, "first_width": 4, "rows": 2, "steps": 22, "tokens_made": 44},
    "no-cache": {
        "tokens_naive": sum(range(4, 44)),
        "tokens_cached": 43,
        "pairs_naive": sum(length**2 for length in range(4, 44)),
        "pairs_cached": 4**2 + sum(range(5, 44)),
    },
    "padding": {"padding": 99 * 7, "real": 107, "positions": 800},
    "static-against-continuous": {"useful": 480, "slots": 1024, "steps": 256, "continuous_rows": 480},
    "reserving-against-blocks": {"reserved_filled": 51, "reserved_slots": 1024, "blocks_slots": 64},
    "prefix-caching": {"second_cached": 32, "second_computed": 16, "third_cached": 0, "third_computed": 48},
    "running-out": {"steps_alone": 44, "finished": 3, "preempted_requests": 1},
    "long-prefill": {"whole_steps": 1},
    "blocking-against-async": {
        "in_turn_steps": 32,
        "at_once_steps": 8,
        "in_turn_rows": 1,
        "at_once_rows": 4,
    },
    "why-so-much-memory": {"per_token": 36_864},
}
"""What comes out whatever the machine: counts, not times."""
