from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from components.words import LANGUAGES, WORDS_FOLDER, PageWords, word, words

ROOT = Path(__file__).resolve().parents[3]
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def test_every_language_has_the_same_keys() -> None:
    assert {lang: set(words(lang)) - set(words("en")) for lang in LANGUAGES} == {
        lang: set() for lang in LANGUAGES
    }
    assert {lang: set(words("en")) - set(words(lang)) for lang in LANGUAGES} == {
        lang: set() for lang in LANGUAGES
    }


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_sentence_takes_the_same_values_in_every_language(lang: str) -> None:
    different = [
        key
        for key, sentence in words("en").items()
        if set(PLACEHOLDER.findall(sentence)) != set(PLACEHOLDER.findall(words(lang)[key]))
    ]
    assert different == []


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_keys_are_sorted_so_that_two_people_can_add_some(lang: str) -> None:
    keys = list(json.loads((WORDS_FOLDER / f"{lang}.json").read_text(encoding="utf-8")))
    assert keys == sorted(keys)


def test_every_word_that_the_page_says_is_there() -> None:
    literal = re.compile(r'"((?:page|chat|settings)\.[a-z_.]+)"')
    said = {
        key
        for path in (ROOT / "components").glob("*.py")
        for key in literal.findall(path.read_text(encoding="utf-8"))
    }
    assert len(said) > 20
    assert said - set(words("en")) == set()


def test_a_sentence_is_filled_in() -> None:
    assert word("en", "chat.starting", backend="naive") == "naive is starting"
    assert "naive" in word("ko", "chat.starting", backend="naive")


def test_a_language_there_is_none_for_is_english() -> None:
    assert words("fr") == words("en")


def test_a_missing_word_is_a_fault() -> None:
    with pytest.raises(KeyError):
        PageWords()("chat.nonsense")
