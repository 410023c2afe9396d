"""The house as it was drawn: who may import whom, and that what the documents name is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("naive", "generate", "paged", "vllm_async", "remote")
MODULES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "app.py", *(ROOT / "backends").rglob("*.py"), *(ROOT / "components").rglob("*.py"))
)

MAY_IMPORT_TORCH = re.compile(
    r"backends/(generate/.*|naive/model_worker"
    r"|paged/(kv_cache|attention|plain_model|fast/.*|quality|model_runner|sampler|core|worker)"
    r"|models/convert|torch_worker|vllm_async/launch)\.py"
)
"""Modules that only ever run in a child process; the server's own process never loads torch."""
PAGE_MAY_IMPORT = {"base", "records", "metrics", "registry", "settings", "errors", "visitors", "logs"}
"""``visitors``: a chat counts as what is asked over HTTP does. ``logs``: every line has its form."""


def imports_of(module: Path) -> Iterator[str]:
    """Dotted names that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offenders(applies: Callable[[Path], bool], is_forbidden: Callable[[Path, str], bool]) -> list[str]:
    """``module → name`` for every forbidden import of the modules a rule applies to."""
    return [
        f"{module} → {name}"
        for module in filter(applies, MODULES)
        for name in imports_of(module)
        if is_forbidden(module, name)
    ]


def engine_of(name: str) -> str | None:
    """``backends.naive.engine`` → ``naive``; ``None`` for what belongs to no engine."""
    parts = name.split(".")
    return parts[1] if parts[0] == "backends" and len(parts) > 1 and parts[1] in ENGINES else None


def is_engine(module: Path) -> bool:
    return module.parts[0] == "backends" and module.parts[1] in ENGINES


def test_nothing_below_the_page_knows_gradio_or_the_page() -> None:
    upper = {"gradio", "components", "app"}
    assert offenders(lambda m: m.parts[0] == "backends", lambda _, name: name.split(".")[0] in upper) == []


def test_the_page_knows_engines_by_their_protocol_only() -> None:
    def is_forbidden(_: Path, name: str) -> bool:
        parts = name.split(".")
        return parts[0] == "app" or (parts[0] == "backends" and parts[1] not in PAGE_MAY_IMPORT)

    assert offenders(lambda m: m.parts[0] == "components", is_forbidden) == []


def test_engines_do_not_know_each_other() -> None:
    assert offenders(is_engine, lambda m, name: engine_of(name) not in (None, m.parts[1])) == []


def test_nothing_else_in_backends_knows_an_engine() -> None:
    assert (
        offenders(
            lambda m: m.parts[0] == "backends" and not is_engine(m),
            lambda _, name: engine_of(name) is not None,
        )
        == []
    )


def test_torch_is_loaded_in_child_processes_only() -> None:
    assert (
        offenders(
            lambda m: not MAY_IMPORT_TORCH.fullmatch(m.as_posix()),
            lambda _, name: name.split(".")[0] in ("torch", "transformers"),
        )
        == []
    )


def test_vllm_is_known_in_one_folder() -> None:
    assert (
        offenders(lambda m: "vllm_async" not in m.parts, lambda _, name: name.split(".")[0] == "vllm") == []
    )


@pytest.mark.parametrize(
    "module", ["app", "backends.naive.engine", "backends.generate.engine", "backends.remote.engine"]
)
def test_the_servers_side_of_an_engine_loads_neither_torch_nor_gradio(module: str) -> None:
    code = f"import sys, {module}; print({{'torch', 'transformers', 'vllm', 'gradio'}} & set(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "set()"


# What the documents name


def test_code_that_comes_with_a_model_is_never_run() -> None:
    """Neither transformers nor vLLM does so unless it is told to."""
    sources = {module.as_posix(): (ROOT / module).read_text(encoding="utf-8") for module in MODULES}
    assert [path for path, source in sources.items() if "trust_remote_code" in source] == []


def tree_of_readme() -> Iterator[str]:
    """Paths in the README's tree: two spaces of indent a level, a name, then what it is for."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(app\.py.*?)```", text, re.DOTALL)
    assert block, "the README has no tree"
    folders: list[str] = []
    for line in block[1].splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name]
        yield "".join(folders[:depth]) + name


def test_every_path_in_the_readmes_tree_exists() -> None:
    paths = list(tree_of_readme())
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_module_stands_in_the_readmes_tree() -> None:
    paths = set(tree_of_readme())
    covered = {module.as_posix() for module in MODULES if any(module.as_posix().startswith(p) for p in paths)}
    assert {module.as_posix() for module in MODULES} - covered == set()


DOCUMENTS = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("backends/**/*.md"),
        *ROOT.glob("assets/lessons/**/*.md"),
    ]
)
SYMBOL = re.compile(r"`([\w/]+\.(?:py|js))::([\w.]+)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_symbol_that_a_document_names_exists(document: Path) -> None:
    for path, symbol in SYMBOL.findall(document.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{document.name} names {path}"
        source = (ROOT / path).read_text(encoding="utf-8")
        for name in symbol.split("."):
            assert re.search(
                rf"(class|def|function|const|async def) {name}\b|^    {name}\b|^{name}\b", source, re.M
            ), f"{document.name} names {path}::{symbol}"


PICTURES = ROOT / "docs" / "pictures"


def test_the_readme_shows_every_picture_in_light_and_dark() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"docs/pictures/([\w-]+\.webp)", text))
    assert shown == {path.name for path in PICTURES.glob("*.webp")}
    assert {name.replace("-light", "-dark") for name in shown if "-light" in name} == {
        name for name in shown if "-dark" in name
    }
