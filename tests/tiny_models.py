"""Tiny random models, saved as real ones are: any engine reads them, no download, no GPU.

Two tokenizers, both byte-level BPE, so any text can be encoded. A ``bytes`` model may emit any
token, half a character too. A ``words`` model emits short words only, and each is one token
wherever it stands: ``"a b c d"`` is exactly four tokens, and every generated token adds exactly one
when the text is tokenized anew.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Literal

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from backends.models import PreparedModel
from backends.models.build import build
from backends.models.locate import locate

Architecture = Literal["llama", "qwen2", "qwen3", "opt"]
TokenizerKind = Literal["bytes", "words"]

ARCHITECTURES: tuple[Architecture, ...] = ("llama", "qwen2", "qwen3", "opt")
MAX_POSITIONS = 256

CHAT_TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
SPECIAL_TOKENS = {"pad_token": "<|endoftext|>", "bos_token": "<s>", "eos_token": "</s>"}
CORPUS = (
    "the batch runs one step and every request in it gets one token",
    "the cache keeps what was computed so that it need not be computed again",
    "안녕하세요 한 걸음에 한 토큰",
)


def make_tiny_model(
    folder: Path,
    architecture: Architecture = "llama",
    *,
    tokenizer: TokenizerKind = "bytes",
    chat_template: bool | None = None,
    max_positions: int = MAX_POSITIONS,
    head_dim: int = 8,
    seed: int = 0,
) -> Path:
    """Write config, safetensors weights and tokenizer into ``folder``, and return it.

    ``chat_template=None`` gives every architecture but OPT one, as the real ones have it. ``head_dim`` is
    not for OPT; vLLM's attention for CPUs wants 32 or more.
    """
    wrapped = PreTrainedTokenizerFast(tokenizer_object=_TOKENIZERS[tokenizer](), **SPECIAL_TOKENS)
    if chat_template if chat_template is not None else architecture != "opt":
        wrapped.chat_template = CHAT_TEMPLATE
    torch.manual_seed(seed)
    config = _config(architecture, wrapped, max_positions, head_dim)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _make_decided(model, sorted(_may_emit(wrapped, tokenizer)))
    model.generation_config.eos_token_id = wrapped.eos_token_id
    model.generation_config.pad_token_id = wrapped.pad_token_id
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder


def prepare_tiny_model(
    folder: Path, architecture: Architecture = "llama", *, tokenizer: TokenizerKind = "bytes"
) -> PreparedModel:
    """A tiny model as an engine gets it: out of the cache."""
    source = make_tiny_model(folder / f"{architecture}-{tokenizer}", architecture, tokenizer=tokenizer)
    return build(locate(str(source)), folder / "cache", lambda fraction, sentence: None)


def _config(
    architecture: Architecture, wrapped: PreTrainedTokenizerFast, max_positions: int, head_dim: int
) -> object:
    common = {
        "vocab_size": len(wrapped),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": max_positions,
        "tie_word_embeddings": False,
        "initializer_range": 0.3,
        "bos_token_id": wrapped.bos_token_id,
        "eos_token_id": wrapped.eos_token_id,
        "pad_token_id": wrapped.pad_token_id,
    }
    if architecture == "opt":
        return AutoConfig.for_model("opt", ffn_dim=64, word_embed_proj_dim=32, init_std=0.3, **common)
    return AutoConfig.for_model(
        architecture, intermediate_size=64, num_key_value_heads=2, head_dim=head_dim, **common
    )


def _make_decided(model: PreTrainedModel, may_emit: list[int]) -> None:
    """Give the model clear preferences among the tokens it may emit, and none for the others.

    Rows of the head come in pairs of opposite sign, so some token always scores above 0, which is
    what every token that may not be emitted scores: greedy decoding never ends early.
    """
    head = model.get_output_embeddings().weight
    half = len(may_emit) // 2
    with torch.no_grad():
        rows = head[may_emit[:half]] * 4
        head.zero_()
        head[may_emit[:half]] = rows
        head[may_emit[half : 2 * half]] = -rows


def _may_emit(wrapped: PreTrainedTokenizerFast, tokenizer: TokenizerKind) -> list[int]:
    if tokenizer == "words":
        return [index for token, index in wrapped.get_vocab().items() if token[0] == "Ġ" and token != "Ġ"]
    return [index for index in wrapped.get_vocab().values() if index not in wrapped.all_special_ids]


def _byte_tokenizer() -> Tokenizer:
    tokenizer = _byte_level(BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=_alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _word_tokenizer() -> Tokenizer:
    """Bytes, and merges that make ``Ġ`` (a space) and a word one token."""
    merges = [("Ġ", letter) for letter in ascii_lowercase]
    merges += [(f"Ġ{consonant}", vowel) for consonant in "bdfgk" for vowel in "aeiou"]
    vocabulary = [*SPECIAL_TOKENS.values(), *_alphabet(), *(left + right for left, right in merges)]
    return _byte_level(BPE({token: index for index, token in enumerate(vocabulary)}, merges))


def _byte_level(model: BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _alphabet() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


_TOKENIZERS = {"bytes": _byte_tokenizer, "words": _word_tokenizer}
