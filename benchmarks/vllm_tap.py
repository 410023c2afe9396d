"""What the tap in vLLM's scheduler costs: the same work with it and without it, in turns.

    python -m benchmarks.vllm_tap --rounds 12

Both engines are up at once and take turns, so that what else the machine does falls on both. Greedy,
end-of-sequence ignored, tokens counted. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

from backends.settings import Settings
from backends.vllm_async.engine import VllmEngine
from benchmarks.asking import num_tokens_of

PROMPT = "The quick brown fox jumps over the lazy dog and runs on through the forest. " * 2
CONCURRENT, MAX_TOKENS = 16, 24


async def throughput(engine: VllmEngine) -> float:
    """Tokens a second with all requests at once."""
    start = time.perf_counter()
    counts = await asyncio.gather(
        *(num_tokens_of(engine, MAX_TOKENS, prompt=PROMPT) for _ in range(CONCURRENT))
    )
    seconds = time.perf_counter() - start
    assert counts == [MAX_TOKENS] * CONCURRENT, counts
    return sum(counts) / seconds


async def compare(rounds: int) -> dict[str, object]:
    pool = {"num_blocks": 256, "block_size": 32}
    engines = {tap: VllmEngine(Settings(**pool, vllm_tap=tap)) for tap in (True, False)}
    try:
        for engine in engines.values():
            await engine.start()
            await throughput(engine)  # warm
        seen: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for tap in (True, False) if number % 2 else (False, True):
                seen[tap].append(await throughput(engines[tap]))
                print(
                    f"round {number + 1}: tap {'on' if tap else 'off':3} {seen[tap][-1]:6.1f} tokens/s",
                    flush=True,
                )
        header = engines[True].recorder.header
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines.values()))
    assert header is not None
    ratios = [on / off for on, off in zip(seen[True], seen[False], strict=True)]
    return {
        "benchmark": "vllm_tap",
        "tap_on": statistics.median(seen[True]),
        "tap_off": statistics.median(seen[False]),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 3),
        "concurrent": CONCURRENT,
        "max_tokens": MAX_TOKENS,
        "hardware": header.hardware,
        "versions": header.versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    print(json.dumps(asyncio.run(compare(parser.parse_args().rounds))))


if __name__ == "__main__":
    main()
