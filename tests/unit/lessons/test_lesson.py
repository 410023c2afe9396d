"""The lessons as they lie in assets/lessons: whole in both languages, and true to the code they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends import code_view
from backends.errors import InvalidRequest
from backends.lessons.experiments import EXPERIMENTS
from backends.lessons.lesson import FOLDER, LANGUAGES, UnknownLesson, parse, read_lesson, render, slugs
from backends.shelf import SHIPPED

SLUGS = slugs()
FEWEST_WORDS, MOST_WORDS = 120, 400
WIDEST_LINE = 46
"""Columns of code that a projector of 1280 pixels shows uncut; a Korean letter takes two."""

FRONT = """+++
title = "A title"
needs = ["naive"]
experiment = "shape_of_a_batch"
code = []
[prediction]
question = "How many?"
compares = "one"
unit = "tokens"
[measured.one]
name = "One"
how = "counted"
+++
Text.
+++
What it shows.
"""


def test_every_file_is_a_lesson_in_every_language() -> None:
    assert SLUGS
    assert len(list(FOLDER.glob("*.md"))) == len(SLUGS) * len(LANGUAGES)


def test_lessons_are_numbered_in_order_without_a_number_twice() -> None:
    numbers = [read_lesson(slug, "en").number for slug in SLUGS]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("slug", SLUGS)
def test_both_languages_have_the_same_structure(slug: str) -> None:
    english, korean = (read_lesson(slug, lang) for lang in ("en", "ko"))

    assert korean.number == english.number
    assert korean.needs == english.needs
    assert (korean.experiment, korean.instead) == (english.experiment, english.instead)
    assert korean.code == english.code
    assert korean.recordings == english.recordings
    assert list(korean.measured) == list(english.measured)
    assert korean.prediction.compares == english.prediction.compares
    assert korean.prediction.unit == english.prediction.unit
    assert list(korean.prediction.choices) == list(english.prediction.choices)
    assert (korean.prediction.least, korean.prediction.most) == (
        english.prediction.least,
        english.prediction.most,
    )
    assert (korean.picture and list(korean.picture.series)) == (
        english.picture and list(english.picture.series)
    )
    assert len(korean.picture.bars if korean.picture else ()) == len(
        english.picture.bars if english.picture else ()
    )
    assert korean.text.count("```") == english.text.count("```")
    assert korean.after.count("```") == english.after.count("```")


@pytest.mark.parametrize("slug", SLUGS)
def test_the_korean_text_is_korean(slug: str) -> None:
    lesson = read_lesson(slug, "ko")
    words = [lesson.title, lesson.prediction.question, lesson.text, lesson.after]
    words += [word for measured in lesson.measured.values() for word in (measured.name, measured.how)]
    assert [text for text in words if not any("가" <= letter <= "힣" for letter in text)] == []


@pytest.mark.parametrize("slug", SLUGS)
def test_a_lesson_is_short(slug: str) -> None:
    lesson = read_lesson(slug, "en")
    assert FEWEST_WORDS <= len(f"{lesson.text} {lesson.after}".split()) <= MOST_WORDS


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_line_of_code_in_a_text_is_too_wide_for_a_projector(lang: str) -> None:
    lessons = [read_lesson(slug, lang) for slug in SLUGS]
    code = [part for lesson in lessons for part in f"{lesson.text}\n{lesson.after}".split("```")[1::2]]
    assert [line for part in code for line in part.splitlines() if columns(line) > WIDEST_LINE] == []


def columns(line: str) -> int:
    return sum(2 if "가" <= letter <= "힣" else 1 for letter in line)


@pytest.mark.parametrize("slug", SLUGS)
def test_what_is_predicted_is_measured_and_what_runs_exists(slug: str) -> None:
    lesson = read_lesson(slug, "en")
    assert lesson.prediction.compares in lesson.measured
    assert {lesson.experiment, *lesson.instead.values()} <= set(EXPERIMENTS)
    assert [name for name in lesson.recordings if not (SHIPPED / f"{name}.jsonl.gz").is_file()] == []


@pytest.mark.parametrize("slug", SLUGS)
def test_every_symbol_beside_the_text_can_be_shown(slug: str) -> None:
    lesson = read_lesson(slug, "en")
    assert lesson.code
    for symbol in lesson.code:
        assert code_view.find(symbol).source.strip()


def test_no_experiment_is_without_its_lesson() -> None:
    lessons = [read_lesson(slug, "en") for slug in SLUGS]
    named = [name for lesson in lessons for name in (lesson.experiment, *lesson.instead.values())]
    assert sorted(named) == sorted(EXPERIMENTS)


def test_html_in_a_text_is_shown_as_text() -> None:
    assert "<script>" not in render("before <script>alert(1)</script> after")
    assert 'href="javascript' not in render("[here](javascript:alert(1))")


def test_a_lesson_in_one_language_only_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "01-alone.en.md").write_text(FRONT)
    assert slugs(tmp_path) == []
    (tmp_path / "01-alone.ko.md").write_text(FRONT)
    assert slugs(tmp_path) == ["alone"]


@pytest.mark.parametrize("name", ["nothing", "../settings", "..%2fsettings", ""])
def test_only_what_is_in_the_folder_can_be_read(name: str) -> None:
    with pytest.raises(UnknownLesson, match="There are"):
        read_lesson(name, "en")


def test_a_language_that_there_is_none_in_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'fr'"):
        read_lesson(SLUGS[0], "fr")


def test_a_mistake_in_the_front_matter_names_the_file_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "01-wrong.en.md"
    path.write_text(FRONT.replace('compares = "one"', "compares = 1"))
    with pytest.raises(ValueError, match=r"01-wrong\.en\.md.*prediction\.compares"):
        parse(path)


def test_a_lesson_without_a_part_after_the_run_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "01-short.en.md"
    path.write_text(FRONT.removesuffix("+++\nWhat it shows.\n"))
    with pytest.raises(ValueError, match=r"01-short\.en\.md .*three parts"):
        parse(path)
