"""vLLM's own load tool against a real server: no request fails, and it counts what the engine counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app_server import ROOT, app_server
from tests.tiny_models import make_tiny_model

NUM_PROMPTS, INPUT_LEN, OUTPUT_LEN = 6, 12, 5
OFFLINE = {"HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1"}
"""One thread: a tiny model loses more to the hand-over between threads than it gains."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def address(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cache = str(tmp_path_factory.mktemp("cache"))
    with app_server("--backends", "paged", "--model", str(model), "--cache-dir", cache, **OFFLINE) as address:
        yield address


def bench(address: str, folder: Path, *options: str) -> dict[str, Any]:
    """What ``vllm bench serve`` writes down of a run with random prompts."""
    subprocess.run(
        [
            *(sys.executable, "benchmarks/vllm_bench_serve.py", "--base-url", address, *options),
            *("--dataset-name", "random", "--num-prompts", str(NUM_PROMPTS), "--max-concurrency", "3"),
            *("--random-input-len", str(INPUT_LEN), "--random-output-len", str(OUTPUT_LEN)),
            *("--ignore-eos", "--temperature", "0", "--save-result", "--save-detailed"),
            *("--result-dir", str(folder), "--result-filename", "result.json"),
        ],
        cwd=ROOT,
        env=os.environ | OFFLINE,
        check=True,
    )
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


@pytest.mark.parametrize(
    ("backend", "endpoint"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")]
)
def test_vllm_bench_serve_runs_without_errors(
    backend: str, endpoint: str, address: str, tmp_path: Path
) -> None:
    """Model and tokenizer are those that ``/v1/models`` names."""
    result = bench(address, tmp_path, "--backend", backend, "--endpoint", endpoint)

    assert (result["completed"], result["failed"]) == (NUM_PROMPTS, 0), result["errors"]
    assert result["output_lens"] == [OUTPUT_LEN] * NUM_PROMPTS
    assert [len(gaps) for gaps in result["itls"]] == [OUTPUT_LEN - 1] * NUM_PROMPTS
    assert min(result["ttfts"]) > 0
