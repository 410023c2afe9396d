"""The project's own code: symbols found where they stand, lines counted, and no other file to be had."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from pathlib import Path

import pytest

from backends import code_view
from backends.api import teaching
from backends.code_view import ROOT, UnknownSymbol, count_code_lines, engines, find
from backends.workloads import workload

SCRIPTS = sorted((ROOT / "assets/js").rglob("*.js"))


def test_a_class_is_found_as_python_itself_finds_it() -> None:
    found = find("backends/workloads/workload.py::Workload")
    lines, first = inspect.getsourcelines(workload.Workload)
    assert (found.source, found.first_line, found.num_lines) == ("".join(lines), first, len(lines))
    assert (found.path, found.symbol) == ("backends/workloads/workload.py", "Workload")


def test_a_method_is_found_in_its_class_with_its_decorators() -> None:
    found = find("backends/code_view.py::engines")
    assert found.source == inspect.getsource(code_view.engines.__wrapped__)
    assert find("backends/base.py::GenerationRequest.prompts").source.startswith(
        "    @property\n    def prompts"
    )


def test_an_assignment_comes_with_the_sentence_under_it() -> None:
    found = find("backends/api/teaching.py::PATIENCE")
    assert found.source.startswith(f"PATIENCE = {teaching.PATIENCE}\n")
    assert found.source.endswith('two keep-alives."""\n')
    assert found.num_lines == 3
    assert find("backends/records.py::Record").source.startswith("class Record(")


def test_a_path_alone_is_the_whole_file() -> None:
    found = find("app.py")
    assert found.source == (ROOT / "app.py").read_text(encoding="utf-8")
    assert (found.symbol, found.first_line) == (None, 1)
    assert found.num_lines == len(found.source.splitlines())


def test_a_scripts_function_comes_with_the_comment_above_it() -> None:
    assert find("assets/js/words.js::wordsOf").source.splitlines()[:2] == [
        "/** A missing key shows itself, so that it is seen; a test compares the keys of the languages. */",
        "export function wordsOf(sentences) {",
    ]
    assert find("assets/js/words.js::LANGUAGES").source == "const LANGUAGES = ['en', 'ko'];\n"
    method = find("assets/js/store.js::Store.titleOf").source
    assert method == "  titleOf(backend) {\n    return this.titles.get(backend) ?? backend ?? '';\n  }\n"


def test_every_declaration_of_every_script_is_found_whole(tmp_path: Path) -> None:
    declaration = re.compile(r"^(?:export )?(?:async )?(?:class|function\*?|const|let) ([\w$]+)", re.M)
    names = [
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for path in SCRIPTS
        for name in declaration.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(names) > 100
    given = tmp_path / "sources.json"
    given.write_text(json.dumps({name: find(name).source for name in names}), encoding="utf-8")
    parse = f"""
        const {{ SourceTextModule }} = require('node:vm');
        const sources = JSON.parse(require('node:fs').readFileSync({json.dumps(str(given))}, 'utf-8'));
        const broken = Object.keys(sources).filter((name) => {{
            try {{ new SourceTextModule(sources[name]); return false; }} catch {{ return true; }}
        }});
        console.log(JSON.stringify(broken));
    """
    answer = subprocess.run(
        ["node", "--experimental-vm-modules", "--no-warnings", "-e", parse],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "/etc/passwd",
        "../../../etc/passwd",
        "backends/../Makefile",
        "backends/../tests/fakes.py",
        "backends/../app.py",
        "./app.py",
        str(ROOT / "app.py"),
        "backends",
        "backends/",
        "backends/naive/model_worker.py/",
        "backends\\base.py",
        "app.py\0",
        "README.md",
        "requirements.txt",
        ".git/config",
        "tests/fakes.py",
        "assets/words/en.json",
        "assets/css/tokens.css",
        ".venv/lib/python3.11/site-packages/torch/__init__.py",
        "%2e%2e/app.py",
    ],
)
def test_no_other_file_can_be_had(name: str) -> None:
    for asked in (name, f"{name}::create_app"):
        with pytest.raises(UnknownSymbol, match="No file"):
            find(asked)


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("SECRET = 1\n", encoding="utf-8")
    root = tmp_path / "project"
    (root / "backends").mkdir(parents=True)
    (root / "backends" / "inside.py").write_text("OPEN = 1\n", encoding="utf-8")
    (root / "backends" / "link.py").symlink_to(outside)
    monkeypatch.setattr(code_view, "ROOT", root)
    assert find("backends/inside.py::OPEN").source == "OPEN = 1\n"
    with pytest.raises(UnknownSymbol, match="No file"):
        find("backends/link.py")


@pytest.mark.parametrize(
    "name",
    [
        "app.py::nothing",
        "app.py::",
        "app.py::create_app.lifespan",
        "app.py::.",
        "app.py::a::b",
        "assets/js/store.js::Store.nothing",
        "assets/js/store.js::nothing",
    ],
)
def test_what_is_not_in_the_file_is_refused_by_name(name: str) -> None:
    path, _, symbol = name.partition("::")
    if not symbol:
        assert find(name) == find(path)
        return
    with pytest.raises(UnknownSymbol) as refused:
        find(name)
    assert path in refused.value.message
    assert symbol in refused.value.message


def test_only_lines_with_something_to_run_are_counted() -> None:
    text = '''"""What it is.

Longer.
"""

import os  # counted, for what stands before the comment


# a comment
LIMIT = 3
"""What the limit is."""


def first(
    values: list[int],
) -> str:
    """Contract."""

    text = """two
    lines of data"""
    return text  # and this
'''
    assert count_code_lines(text) == 8


def test_the_lines_of_every_engine_add_up() -> None:
    counted = engines()
    assert [engine.engine for engine in counted] == ["naive", "generate", "paged", "vllm", "remote"]
    for engine in counted:
        assert engine.code_lines == sum(file.code_lines for file in engine.files)
        for file in engine.files:
            text = (ROOT / file.path).read_text(encoding="utf-8")
            assert file.path.startswith(f"{engine.folder}/")
            assert file.total_lines == text.count("\n")
            assert 0 < file.code_lines < file.total_lines
            assert file.about


def test_every_symbol_an_engine_lists_can_be_shown() -> None:
    for engine in engines():
        for file in engine.files:
            for symbol in file.symbols:
                found = find(f"{file.path}::{symbol}")
                assert re.search(rf"(class|def) {symbol.rpartition('.')[2]}\b", found.source)
