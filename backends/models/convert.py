"""The heavy half: any source → a folder of safetensors and ``tokenizer.json``.

The only module here that imports torch and transformers, and only inside its functions: it runs
in the child process that ``prepare.py`` starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from backends.errors import EngineUnavailable
from backends.models.describe import read_json, unsupported_reason

Report = Callable[[float, str], None]
"""Tell whoever waits how far it is: fraction, sentence."""

SAMPLES = ("a b c d", " Hello, world!\n", "여러분, 안녕하세요 👋", "<s>x</s>")
"""What both ways of tokenizing must agree on."""


def convert_gguf(gguf: Path, folder: Path, report: Report) -> None:
    """Dequantize one GGUF file to float32. Takes half a minute for 135M parameters."""
    report(0.02, "Loading torch and transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    report(0.15, f"Reading the tokenizer of {gguf.name}")
    with _in_plain_words(gguf.name):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
    _write_tokenizer(tokenizer, folder)
    report(0.35, f"Unpacking the weights of {gguf.name}")
    with _in_plain_words(gguf.name):
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
        )
    report(0.8, "Writing the weights")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    _write_dequantized(model, folder)


def convert_folder(source: Path, folder: Path, report: Report) -> None:
    """Link safetensors as they are, convert older weights; bring the tokenizer into one form."""
    reason = unsupported_reason(read_json(source / "config.json"))
    if reason is not None:
        raise EngineUnavailable(reason)
    report(0.02, "Loading transformers")
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    report(0.3, "Reading the tokenizer")
    # Where there is a tokenizer.json it is taken at its word; AutoTokenizer would rebuild it by the
    # rules of the architecture's usual tokenizer.
    has_json = (source / "tokenizer.json").is_file()
    tokenizer_class = PreTrainedTokenizerFast if has_json else AutoTokenizer
    with _in_plain_words(f"The tokenizer of {source.name}"):
        tokenizer = tokenizer_class.from_pretrained(source, local_files_only=True)
    _write_tokenizer(tokenizer, folder)
    report(0.5, "Reading the weights")
    weights = sorted(source.glob("*.safetensors"))
    if weights:
        for path in [*weights, *source.glob("*.safetensors.index.json")]:
            _link(path, folder)
        for name in ("config.json", "generation_config.json"):
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
    else:
        _convert_older_weights(source, folder)


def _convert_older_weights(source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    if not any(source.glob("pytorch_model*.bin")):
        raise EngineUnavailable(
            f"{source.name} has no weights: neither *.safetensors nor pytorch_model*.bin."
        )
    with _in_plain_words(source.name):
        model = AutoModelForCausalLM.from_pretrained(source, dtype="auto", local_files_only=True)
    model.save_pretrained(folder)


def _write_tokenizer(tokenizer: Any, folder: Path) -> None:
    if isinstance(tokenizer.chat_template, dict):  # several, by name: the page uses the default one
        tokenizer.chat_template = tokenizer.chat_template.get("default")
    tokenizer.save_pretrained(folder)
    _check_tokenizer(folder)


def _check_tokenizer(folder: Path) -> None:
    """The light ``tokenizers`` library in the server and transformers in a worker must agree."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").is_file():
        raise EngineUnavailable("The tokenizer of this model cannot be written as a tokenizer.json.")
    light = Tokenizer.from_file(str(folder / "tokenizer.json"))
    full = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    for sample in SAMPLES:
        if light.encode(sample).ids != full(sample)["input_ids"]:
            raise EngineUnavailable(
                f"The tokenizer of this model cannot be brought into one form: {sample!r} gives "
                f"{light.encode(sample).ids} and {full(sample)['input_ids']}."
            )


def _write_dequantized(model: Any, folder: Path) -> None:
    """``save_pretrained`` refuses a model that was read from GGUF, so its parts are written here."""
    from safetensors.torch import save_file

    config = model.config
    config.architectures = [type(model).__name__]
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path = ""
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tensors = {}
    addresses = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in addresses:  # tied weights are stored once
            addresses.add(tensor.data_ptr())
            tensors[name] = tensor.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    reason = unsupported_reason(msgspec.json.decode((folder / "config.json").read_bytes()))
    if reason is not None:
        raise EngineUnavailable(reason)


@contextmanager
def _in_plain_words(what: str) -> Iterator[None]:
    """transformers says in many ways that it cannot read a file."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EngineUnavailable(f"{what} cannot be read: {error}") from error


def _link(path: Path, folder: Path) -> None:
    """Large files are not copied where the system can link."""
    try:
        (folder / path.name).symlink_to(path.resolve())
    except OSError:  # Windows without the right to
        shutil.copyfile(path, folder / path.name)
