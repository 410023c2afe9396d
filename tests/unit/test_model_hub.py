"""A model from the hub: downloaded once, refused before its weights are fetched, said in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from backends.errors import EngineUnavailable
from backends.models import prepare_model
from tests.model_hub import Hub, serve_hub
from tests.tiny_models import make_tiny_model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one tiny model; the preparing child, which inherits our environment, asks it."""
    with serve_hub() as hub:
        hub.repositories["owner/tiny"] = make_tiny_model(tmp_path / "repository", "qwen2")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "downloads"))
        yield hub


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def ignore_progress(fraction: float, sentence: str) -> None:
    """For tests that are about something else."""


async def test_a_model_is_downloaded_once_with_progress(hub: Hub, cache: Path) -> None:
    sentences: list[str] = []
    model = await prepare_model("owner/tiny", cache, lambda _, sentence: sentences.append(sentence))
    assert (model.name, model.architecture) == ("tiny", "Qwen2ForCausalLM")
    assert "Downloading owner/tiny" in sentences
    assert hub.downloaded.count("model.safetensors") == 1
    loaded = AutoModelForCausalLM.from_pretrained(model.path).state_dict()
    source = AutoModelForCausalLM.from_pretrained(hub.repositories["owner/tiny"]).state_dict()
    assert all(torch.equal(source[name], loaded[name]) for name in source)
    hub.repositories.clear()
    assert await prepare_model("owner/tiny", cache, ignore_progress) == model, "and then needs no hub"


async def test_an_architecture_that_cannot_run_is_refused_before_its_weights_are_fetched(
    hub: Hub, cache: Path
) -> None:
    path = hub.repositories["owner/tiny"] / "config.json"
    config = json.loads(path.read_text()) | {"use_sliding_window": True, "sliding_window": 64}
    path.write_text(json.dumps(config))
    with pytest.raises(EngineUnavailable, match="Qwen2ForCausalLM has a sliding window of 64"):
        await prepare_model("owner/tiny", cache, ignore_progress)
    assert "model.safetensors" not in hub.downloaded


async def test_a_repository_with_older_weights_is_converted(hub: Hub, cache: Path) -> None:
    folder = hub.repositories["owner/tiny"]
    torch.save(AutoModelForCausalLM.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    model = await prepare_model("owner/tiny", cache, ignore_progress)
    assert (Path(model.path) / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("repository", "words"),
    [
        ("owner/unknown", "There is no model 'owner/unknown' on the hub"),
        ("owner/gated", "owner/gated is gated: accept its licence"),
        ("owner/empty", "owner/empty holds no model: there is no config.json"),
    ],
)
async def test_what_the_hub_does_not_give_is_said_in_words(
    repository: str, words: str, hub: Hub, cache: Path, tmp_path: Path
) -> None:
    hub.gated.add("owner/gated")
    hub.repositories["owner/empty"] = tmp_path / "empty"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing else")
    with pytest.raises(EngineUnavailable, match=words):
        await prepare_model(repository, cache, ignore_progress)
