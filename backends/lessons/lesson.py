"""A lesson as it lies in ``assets/lessons/<nn>-<slug>.<lang>.md``: three parts, ``+++`` between them.

    +++
    title = …            front matter, in TOML
    +++
    What to know before predicting.
    +++
    What the run shows, which would give the answer away.

The texts are plain Markdown, without HTML. Files are read when they are asked for, so that whoever
writes one sees it at once.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from markdown_it import MarkdownIt

from backends.errors import InvalidRequest, ServescopeError
from backends.lessons.outcome import Unit

FOLDER = Path(__file__).parents[2] / "assets" / "lessons"
LANGUAGES = ("en", "ko")
NAME = re.compile(r"(\d\d)-([a-z0-9-]+)\.(en|ko)\.md")
FENCE = "+++\n"


class UnknownLesson(ServescopeError):
    """No lesson of that name."""

    status = 404
    code = "unknown_lesson"


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked before anything runs: a number, or one of ``choices``."""

    question: str
    compares: str
    """The measured value that it is held against."""
    unit: Unit
    """Of that value; a share is asked for in percent."""
    choices: dict[str, str] = {}
    """Value → its words, for ``Unit.CHOICE``."""
    least: float = 0
    most: Annotated[float, msgspec.Meta(gt=0)] = 1_000_000


class MeasuredWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a measured value is called, and how it was obtained."""

    name: str
    how: str


class PictureWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    bar: str
    """What one bar is: a step, a request."""
    bars: tuple[str, ...] = ()
    """Each bar's name, where a number says too little."""
    series: dict[str, str]


class Lesson(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lesson in one language."""

    slug: str
    number: int
    title: str
    needs: tuple[str, ...]
    """Engines that its experiment runs on."""
    experiment: str
    instead: dict[str, str] = {}
    """Engine → experiment that measures the same on it: what is run where that engine is, unless the
    visitor chooses otherwise."""
    recordings: tuple[str, ...] = ()
    """In ``assets/traces/``: what it did elsewhere, for whoever cannot run it."""
    code: tuple[str, ...]
    """``path::Symbol`` of what does it."""
    prediction: Prediction
    measured: dict[str, MeasuredWords]
    """In the order of the table."""
    picture: PictureWords | None = None
    text: str
    after: str
    """Shown once it has run, or on demand."""


_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")


def render(text: str) -> str:
    """Markdown → HTML; HTML in it is shown as text."""
    return str(_markdown.render(text))


def slugs(folder: Path = FOLDER) -> list[str]:
    """Those there are in every language, in order."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*.md")):
        if match := NAME.fullmatch(path.name):
            found.setdefault(match[2], set()).add(match[3])
    return [slug for slug, languages in found.items() if languages == set(LANGUAGES)]


def read_lesson(slug: str, lang: str, folder: Path = FOLDER) -> Lesson:
    """Raises ``UnknownLesson``, or ``InvalidRequest`` for a language there is none in."""
    if lang not in LANGUAGES:
        raise InvalidRequest(f"lang is {lang!r}; it must be one of {', '.join(LANGUAGES)}.", field="lang")
    if slug not in slugs(folder):
        raise UnknownLesson(f"No lesson {slug!r}. There are: {', '.join(slugs(folder))}.", field="slug")
    [path] = (path for path in folder.glob(f"??-*.{lang}.md") if _name(path)[1] == slug)
    return parse(path)


def parse(path: Path) -> Lesson:
    """Raises ``ValueError`` with the file's name and what is wrong in it."""
    before, *parts = path.read_text(encoding="utf-8").split(FENCE)
    if before or len(parts) != 3:
        raise ValueError(f"{path.name} does not begin with +++ and have three parts")
    front, text, after = parts
    number, slug = _name(path)
    fields = {**tomllib.loads(front), "text": text.strip(), "after": after.strip()}
    try:
        return msgspec.convert({**fields, "number": number, "slug": slug}, Lesson)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _name(path: Path) -> tuple[int, str]:
    match = NAME.fullmatch(path.name)
    assert match is not None, path.name
    return int(match[1]), match[2]
