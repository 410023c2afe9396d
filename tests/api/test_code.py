"""The routes that show the project's own code."""

from __future__ import annotations

import pytest

from backends.code_view import ROOT
from tests.api.serving import serving


async def test_a_symbol_comes_with_its_place() -> None:
    async with serving() as served, served.client() as client:
        response = await client.get("/code", params={"symbol": "backends/naive/model_worker.py::ModelWorker"})
    assert response.status_code == 200
    found = response.json()
    assert set(found) == {"path", "symbol", "first_line", "num_lines", "source"}
    lines = (ROOT / found["path"]).read_text(encoding="utf-8").splitlines(keepends=True)
    first = found["first_line"] - 1
    assert "".join(lines[first : first + found["num_lines"]]) == found["source"]
    assert found["source"].startswith("class ModelWorker")


async def test_engines_come_with_their_files_and_counts() -> None:
    async with serving() as served, served.client() as client:
        response = await client.get("/code/engines")
    assert response.status_code == 200
    engines = {engine["engine"]: engine for engine in response.json()}
    assert set(engines) == {"naive", "generate", "paged", "vllm", "remote"}
    [sync_mode] = [file for file in engines["vllm"]["files"] if file["path"].endswith("/sync_mode.py")]
    assert 0 < sync_mode["code_lines"] < sync_mode["total_lines"]
    assert engines["naive"]["code_lines"] > 10 * sync_mode["code_lines"]


@pytest.mark.parametrize(
    "symbol",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "backends/../tests/fakes.py",
        "README.md",
        "..%2f..%2fetc%2fpasswd",
        "backends/naive/model_worker.py::Nothing",
        "backends/naive/model_worker.py::ModelWorker.nothing",
    ],
)
async def test_what_is_not_ours_or_not_there_is_a_404_in_words(symbol: str) -> None:
    async with serving() as served, served.client() as client:
        response = await client.get("/code", params={"symbol": symbol})
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["field"]) == ("unknown_symbol", "symbol")
    assert symbol.rpartition("::")[2] in error["message"]


@pytest.mark.parametrize("query", ["", "?symbol=", f"?symbol={'x' * 301}"])
async def test_a_name_that_is_missing_or_endless_is_refused(query: str) -> None:
    async with serving() as served, served.client() as client:
        response = await client.get(f"/code{query}")
    assert response.status_code == 422
    assert response.json()["error"]["field"] == "symbol"
