"""Text to tokens and back: nothing half, nothing lost, the same as transformers."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from backends.errors import InvalidRequest
from backends.models import PreparedModel
from backends.models.build import build
from backends.models.locate import locate
from backends.text import OutputText, StopMatcher, TextCodec, plain_chat
from tests.tiny_models import make_tiny_model, prepare_tiny_model

TEXTS = (
    "a b c d",
    "Hello, world!",
    "  two leading spaces",
    "line\n\nline\ttab",
    "여러분, 안녕하세요",
    "👋🏽 family: 👩‍👩‍👧‍👦 flag: 🇰🇷",
    "naïve café – “quotes” …",
    "<s>special</s>",
)
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONVERSATION = [
    {"role": "system", "content": "Be brief. <b>{{ 1 + 1 }}</b>"},
    {"role": "user", "content": "안녕?"},
    {"role": "assistant", "content": "안녕하세요 👋"},
    {"role": "user", "content": "What is a token?"},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    return prepare_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def codec(tiny: PreparedModel) -> TextCodec:
    return TextCodec.load(tiny)


def sentencepiece_like() -> Tokenizer:
    """As Llama 2's: ``▁`` for a space, one put before the first word, bytes for what is unknown."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [*"abcdehlowr,!", "▁a", "▁b", "▁c", "▁h", "▁w", "he", "ll", "▁he", "▁hell", "▁hello"]
    merges = [("▁", letter) for letter in "abchw"] + [("h", "e"), ("l", "l"), ("▁h", "e"), ("▁he", "ll")]
    merges += [("▁hell", "o")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


# Tokens


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_is_encoded_as_transformers_encodes_it(
    text: str, tiny: PreparedModel, codec: TextCodec
) -> None:
    expected = AutoTokenizer.from_pretrained(tiny.path)(text)["input_ids"]
    assert codec.encode(text) == expected
    assert codec.count_tokens(text) == len(expected)


def test_the_start_token_that_a_tokenizer_adds_is_counted() -> None:
    tokenizer = sentencepiece_like()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    codec = TextCodec(tokenizer, None, {"bos_token": "<s>"})
    assert codec.encode("hello a b") == wrapped("hello a b")["input_ids"]
    assert codec.count_tokens("hello a b") == 4


def test_a_words_model_has_one_token_a_word(tmp_path: Path) -> None:
    codec = TextCodec.load(prepare_tiny_model(tmp_path, tokenizer="words"))
    assert codec.count_tokens("a b c d") == 4
    text, ids = "a b c d", codec.encode("a b c d")
    for token_id in codec.encode(" e fa gi z"):
        text, ids = text + codec.decode([token_id]), [*ids, token_id]
        assert codec.encode(text) == ids


# Streaming


def stream(codec: TextCodec, prompt: str, ids: list[int]) -> list[str]:
    detokenizer = codec.detokenizer(codec.encode(prompt))
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


@pytest.mark.parametrize("text", TEXTS[:-1])
def test_streamed_pieces_are_whole_characters_and_make_up_the_text(text: str, codec: TextCodec) -> None:
    pieces = stream(codec, "a", codec.encode(text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_of_several_tokens_comes_with_its_last_one(codec: TextCodec) -> None:
    assert stream(codec, "a", codec.encode("👋")) == ["", "", "", "👋", ""]


def test_half_a_character_at_the_end_never_comes(codec: TextCodec) -> None:
    assert "".join(stream(codec, "a", codec.encode("ab 👋")[:-1])) == "ab "


def test_the_space_before_the_first_word_of_an_answer_is_kept() -> None:
    codec = TextCodec(sentencepiece_like(), None, {})
    answer = codec.encode("hello a, hello 안녕!")[1:]
    assert codec.decode(answer[:1]) == "hello", "alone, the first word has lost its space"
    pieces = stream(codec, "hello w", answer)
    assert pieces[:2] == [" hello", " a"]
    assert "".join(pieces) == " hello a, hello 안녕!"


def test_a_token_alone_keeps_its_space_and_a_special_one_its_name() -> None:
    tokenizer = sentencepiece_like()
    codec = TextCodec(tokenizer, None, {})
    texts = [codec.token_text(tokenizer.token_to_id(piece)) for piece in ("▁hello", "he", "</s>", "<0xEC>")]
    assert texts == [" hello", "he", "</s>", "\ufffd"]


def test_special_tokens_add_no_text(codec: TextCodec) -> None:
    assert "".join(stream(codec, "a", codec.encode("a</s>b<s>"))) == "ab"


@pytest.mark.parametrize("seed", range(20))
def test_any_tokens_at_all_stream_to_the_text_they_decode_to(seed: int, codec: TextCodec) -> None:
    ids = random.Random(seed).choices(range(320), k=60)
    expected = codec.decode(ids)
    assert "".join(stream(codec, "", ids)) == expected.rstrip("\ufffd")


# Stop strings


def feed(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece) for piece in pieces]
    return [*shown, matcher.finish()], matcher.met


def test_a_stop_string_inside_one_piece_cuts_it() -> None:
    assert feed(("###",), ["one ### two", " three"]) == (["one ", "", ""], True)


def test_a_stop_string_across_pieces_is_found_and_none_of_it_shown() -> None:
    assert feed(("\nUser:",), ["Hi.", "\n", "Us", "er", ": x"]) == (["Hi.", "", "", "", "", ""], True)


def test_what_only_looked_like_the_start_of_a_stop_string_is_shown_after_all() -> None:
    assert feed(("\nUser:",), ["Hi.\n", "Us", "ually"]) == (["Hi.", "", "\nUsually", ""], False)
    assert feed(("stop",), ["please st"]) == (["please ", "st"], False)


def test_the_earliest_of_several_stop_strings_counts() -> None:
    assert feed(("d", "bc"), ["abcd"]) == (
        [
            "a",
            "",
        ],
        True,
    )


def test_without_stop_strings_nothing_is_held_back() -> None:
    assert feed((), ["a", "b"]) == (["a", "b", ""], False)


@given(
    text=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
    cuts=st.lists(st.integers(0, 20), max_size=6),
)
def test_however_text_is_cut_no_stop_string_is_shown(
    text: str, stops: tuple[str, ...], cuts: list[int]
) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[low:high] for low, high in itertools.pairwise(borders)]
    shown, met = feed(stops, pieces)
    # A stop string counts once it is there, so of two that overlap the one that ends first wins.
    ends = [
        (end, end - len(stop)) for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)
    ]
    assert met == bool(ends)
    if not ends:
        assert "".join(shown) == text
    else:
        assert all(stop not in "".join(shown) for stop in stops)
        assert text.startswith("".join(shown))


def test_an_answer_ends_where_its_stop_string_begins(codec: TextCodec) -> None:
    output = OutputText(codec.detokenizer(codec.encode("a")), ("녕하",))
    shown = ""
    for token_id in codec.encode("안녕하세요"):
        shown += output.push(token_id)
        if output.stopped:
            break
    assert shown + output.finish() == "안"


# Chat templates


@pytest.mark.parametrize("conversation", [CONVERSATION, CONVERSATION[1:], CONVERSATION[:2]])
@pytest.mark.parametrize("template", [SMOLLM2_TEMPLATE, None])
def test_a_chat_is_rendered_as_transformers_renders_it(
    template: str | None, conversation: list[dict[str, str]], tmp_path: Path
) -> None:
    source = make_tiny_model(tmp_path / "model", "qwen2")
    if template is not None:
        (source / "chat_template.jinja").write_text(template)
    prepared = build(locate(str(source)), tmp_path / "cache", lambda fraction, sentence: None)
    tokenizer = AutoTokenizer.from_pretrained(prepared.path)
    expected = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert TextCodec.load(prepared).render_chat(conversation) == expected


def test_everything_that_templates_use_renders_as_in_transformers(tiny: PreparedModel) -> None:
    template = (
        "{{ bos_token }}{% for message in messages %}\n"
        "    {% if message.role == 'system' %}{% continue %}{% endif %}\n"
        "  {% generation %}{{ message.content | trim | tojson }}{% endgeneration %}\n"
        "{% endfor %}{{ strftime_now('%Y') }}{{ eos_token }}{% if tools is none %}none{% endif %}"
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny.path)
    tokenizer.chat_template = template
    codec = TextCodec(Tokenizer.from_file(tiny.tokenizer_file), template, tokenizer.special_tokens_map)
    assert codec.render_chat(CONVERSATION) == tokenizer.apply_chat_template(
        CONVERSATION, tokenize=False, add_generation_prompt=True
    )


def test_a_start_token_that_the_tokenizer_adds_is_not_in_the_prompt_twice() -> None:
    tokenizer = sentencepiece_like()
    template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    wrapped.chat_template = template
    codec = TextCodec(tokenizer, template, {"bos_token": "<s>"})
    messages = [{"role": "user", "content": "hello a"}]
    expected = wrapped.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert codec.encode(codec.render_chat(messages)) == expected


def test_a_model_without_a_template_gets_plain_text(tmp_path: Path) -> None:
    codec = TextCodec.load(prepare_tiny_model(tmp_path, "opt"))
    assert not codec.has_chat_template
    assert codec.render_chat(CONVERSATION) == plain_chat(CONVERSATION)
    assert plain_chat(CONVERSATION) == (
        "Be brief. <b>{{ 1 + 1 }}</b>\nUser: 안녕?\nAssistant: 안녕하세요 👋\n"
        "User: What is a token?\nAssistant:"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('only user and assistant') }}", "only user and assistant"),
        ("{{ messages.nothing.there }}", "nothing"),
        ("{{ messages[0].content + 1 }}", "failed"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_refuses_is_a_bad_request(template: str, words: str, tiny: PreparedModel) -> None:
    codec = TextCodec(Tokenizer.from_file(tiny.tokenizer_file), template, {})
    with pytest.raises(InvalidRequest, match=words) as caught:
        codec.render_chat(CONVERSATION)
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "no messages"),
        ([{"role": "user"}], "Message 0 needs a content"),
        ([{"content": "x"}], "Message 0 needs a role"),
        ([{"role": "user", "content": 5}], "as text; got 5"),
    ],
)
def test_messages_that_are_none_are_a_bad_request(messages: Any, words: str, codec: TextCodec) -> None:
    with pytest.raises(InvalidRequest, match=words):
        codec.render_chat(messages)


def test_special_tokens_are_read_in_both_spellings(tiny: PreparedModel, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((Path(tiny.path) / name).read_text())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"eos_token": {"content": "</s>", "special": True}, "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}|{{ eos_token }}|{{ add_bos_token }}")
    codec = TextCodec.load(_moved(tiny, tmp_path))
    assert codec.render_chat(CONVERSATION) == "<s>|</s>|"


def _moved(model: PreparedModel, folder: Path) -> PreparedModel:
    from msgspec.structs import replace

    return replace(model, path=str(folder), tokenizer_file=str(folder / "tokenizer.json"))
