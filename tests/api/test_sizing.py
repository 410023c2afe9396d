"""The memory calculator over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from backends.sizing import GIB
from tests.api.serving import serving
from tests.fakes import FakeBackend

PLAN: dict[str, Any] = {
    "num_layers": 12,
    "num_attention_heads": 12,
    "num_kv_heads": 12,
    "head_dim": 64,
    "num_parameters": 125_239_296,
    "dtype": "float16",
    "total_memory": 6 * GIB,
    "free_memory": int(5.2 * GIB),
    "gpu_memory_utilization": 0.9,
    "max_model_len": 2048,
}


async def test_a_plan_comes_back_with_figures_and_a_verdict() -> None:
    async with serving() as served, served.client() as client:
        refused = (await client.post("/sizing", json=PLAN)).json()
        starts = (await client.post("/sizing", json=PLAN | {"gpu_memory_utilization": 0.5})).json()
    figures = {figure["key"]: figure for figure in refused["figures"]}
    assert figures["kv_bytes_per_token"]["value"] == 36_864
    assert figures["kv_bytes_per_token"]["filled"] == "2 × 12 × 12 × 64 × 2"
    assert refused["verdict"]["reason"] == "not_free"
    assert refused["verdict"]["where"].startswith("vllm/v1/worker/utils.py::request_memory")
    assert starts["verdict"] == {"starts": True, "reason": "starts", "message": None, "where": None}
    assert refused["reported"] is None


async def test_it_begins_with_examples_the_machine_and_the_engines_that_run() -> None:
    idle, running = FakeBackend("naive"), FakeBackend("generate")
    async with serving(idle, running) as served, served.client() as client:
        await running.start()
        began = (await client.get("/sizing")).json()
    assert {"facebook/opt-125m", "meta-llama/Meta-Llama-3-8B"} <= {model["name"] for model in began["models"]}
    assert all(model["source"].startswith("https://") for model in began["models"])
    assert [engine["engine"] for engine in began["engines"]] == ["generate"]
    assert began["engines"][0]["shape"]["num_kv_heads"] == 2
    assert began["machine"]["total_memory"] >= began["machine"]["free_memory"] > 0


async def test_an_engine_without_blocks_has_nothing_to_report() -> None:
    async with serving() as served, served.client() as client:
        await served.naive.start()
        response = await client.post("/sizing?engine=naive", json=PLAN)
    assert response.status_code == 200
    assert response.json()["reported"] is None


async def test_an_engine_that_is_not_there_is_refused() -> None:
    async with serving() as served, served.client() as client:
        response = await client.post("/sizing?engine=none", json=PLAN)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_backend"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_layers": 0}, "num_layers"),
        ({"num_layers": "twelve"}, "num_layers"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"dtype": "float64"}, "dtype"),
        ({"max_num_seq": 4}, "max_num_seq"),
        ({"free_memory": 7 * GIB}, "body"),
    ],
)
async def test_a_wrong_value_is_refused_by_name_with_the_value(changes: dict[str, Any], field: str) -> None:
    async with serving() as served, served.client() as client:
        response = await client.post("/sizing", json=PLAN | changes)
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["field"] == field
    [value] = changes.values()
    assert str(value) in error["message"]


async def test_a_config_is_read_and_a_wrong_one_refused() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 100,
        "max_position_embeddings": 256,
    }
    async with serving() as served, served.client() as client:
        read = await client.post("/sizing/config", json=config)
        refused = await client.post("/sizing/config", json=config | {"sliding_window": 128})
        no_object = await client.post("/sizing/config", json=[1])
        endless = await client.post("/sizing/config", json={"x": "y" * 2**21})
    assert read.status_code == 200
    assert read.json()["shape"]["num_kv_heads"] == 2
    assert refused.status_code == 400
    assert "sliding window of 128" in refused.json()["error"]["message"]
    assert (no_object.status_code, endless.status_code) == (422, 413)
