"""The project's own code, to be shown beside what it does: a symbol's source, and lines counted.

``path::Symbol`` names a class, a function, a method (``Class.method``), an assignment of a module or a
class; a path alone names the whole file. Only files of the project's own code can be named.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import msgspec

from backends.errors import ServescopeError

ROOT = Path(__file__).resolve().parent.parent
OWN_CODE = ("app.py", "backends/**/*.py", "components/**/*.py", "assets/js/**/*.js")
ENGINE_FOLDERS = {
    "naive": "backends/naive",
    "generate": "backends/generate",
    "paged": "backends/paged",
    "vllm": "backends/vllm_async",
    "remote": "backends/remote",
}

JS_DECLARATION = r"(?:export )?(?:default )?(?:async )?(?:class|function\*?|const|let) ([\w$]+)"
JS_MEMBER = r"  (?:static )?(?:async )?(?:get |set |\*)?(#?[\w$]+)(?=[\s(=;])"
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class UnknownSymbol(ServescopeError):
    """No such file among the project's own code, or nothing of that name in it."""

    status = 404
    code = "unknown_symbol"


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a file as it stands there."""

    path: str
    symbol: str | None
    first_line: int
    num_lines: int
    source: str


class CodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file and its lines, counted."""

    path: str
    about: str
    """First line of its docstring."""
    code_lines: int
    """Without blank lines, comments and docstrings."""
    total_lines: int
    symbols: list[str]
    """Its classes and functions, in order; methods as ``Class.method``."""


class EngineCode(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's folder holds."""

    engine: str
    folder: str
    files: list[CodeFile]
    code_lines: int
    total_lines: int


def find(name: str) -> Excerpt:
    """The source of ``path::Symbol``, or of a whole file. Raises ``UnknownSymbol``."""
    path, _, symbol = name.partition("::")
    text = _read(path)
    lines = text.splitlines(keepends=True)
    first, last = 1, len(lines)
    if symbol:
        span = (_find_in_python if path.endswith(".py") else _find_in_js)(text, symbol.split("."))
        if span is None:
            raise UnknownSymbol(f"{path} has no {symbol!r}.", field="symbol")
        first, last = span
    source = "".join(lines[first - 1 : last])
    return Excerpt(
        path=path, symbol=symbol or None, first_line=first, num_lines=last - first + 1, source=source
    )


@cache
def engines() -> list[EngineCode]:
    """Every engine's files, counted once: the code that runs is the one there was at the start."""
    return [_engine(name, folder) for name, folder in ENGINE_FOLDERS.items()]


def count_code_lines(text: str) -> int:
    """Lines of Python with something to run on them."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if _is_docstring(node):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def _read(path: str) -> str:
    """A file of the project's own code. The name is looked up among those there are, so nothing that it
    says can lead elsewhere."""
    files = {file.relative_to(ROOT).as_posix(): file for pattern in OWN_CODE for file in ROOT.glob(pattern)}
    file = files.get(path)
    if file is None or not file.resolve().is_relative_to(ROOT):
        raise UnknownSymbol(f"No file {path!r} among the project's own code.", field="symbol")
    return file.read_text(encoding="utf-8")


def _engine(name: str, folder: str) -> EngineCode:
    paths = sorted((ROOT / folder).rglob("*.py"))
    files = [_count(path) for path in paths if path.name != "__init__.py"]
    return EngineCode(
        engine=name,
        folder=folder,
        files=files,
        code_lines=sum(file.code_lines for file in files),
        total_lines=sum(file.total_lines for file in files),
    )


def _count(path: Path) -> CodeFile:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return CodeFile(
        path=path.relative_to(ROOT).as_posix(),
        about=(ast.get_docstring(tree) or "").partition("\n")[0],
        code_lines=count_code_lines(text),
        total_lines=len(text.splitlines()),
        symbols=list(_symbols(tree)),
    )


def _symbols(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{part.name}" for part in node.body if _is_function(part))
        elif _is_function(node):
            yield node.name


# Where a symbol stands: its first and last line, counted from 1


def _find_in_python(text: str, names: list[str]) -> tuple[int, int] | None:
    body: list[ast.stmt] = ast.parse(text).body
    found: tuple[int, int] | None = None
    for name in names:
        place = next((i for i, node in enumerate(body) if name in _names_of(node)), None)
        if place is None:
            return None
        node = body[place]
        decorators = [item.lineno for item in getattr(node, "decorator_list", [])]
        found = min([node.lineno, *decorators]), node.end_lineno or node.lineno
        after = body[place + 1] if place + 1 < len(body) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and after is not None and _is_docstring(after):
            found = found[0], after.end_lineno or after.lineno
        body = node.body if isinstance(node, ast.ClassDef) else []
    return found


def _names_of(node: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(node, ast.ClassDef) or _is_function(node):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """A string for the reader: under a module, a class, a function, or an assignment."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _find_in_js(text: str, names: list[str]) -> tuple[int, int] | None:
    """By its indentation: every script here is formatted, so a declaration goes on as long as lines
    stand further in than its first, and ends with the bracket that stands where it began."""
    lines = text.splitlines()
    first, last, indent = 0, len(lines) - 1, ""
    for name in names:
        begins = re.compile(JS_MEMBER if indent else JS_DECLARATION).match
        found = next(
            (i for i in range(first, last + 1) if (match := begins(lines[i])) and match[1] == name), None
        )
        if found is None:
            return None
        first, last = found, _end_in_js(lines, found, indent)
        indent += "  "
    while first > 0 and re.match(r"\s*(//|/?\*)", lines[first - 1]):
        first -= 1
    return first + 1, last + 1


def _end_in_js(lines: list[str], first: int, indent: str) -> int:
    last = first
    in_template = lines[first].count("`") % 2 == 1
    for i in range(first + 1, len(lines)):
        line = lines[i]
        was_in_template = in_template
        in_template ^= line.count("`") % 2 == 1
        if was_in_template or line.startswith(indent + " "):
            last = i  # text of a template stands wherever it likes
        elif re.match(rf"{indent}[}}\])]", line):
            last = i
            if not line.endswith(("{", "(", "[")) and not in_template:
                break
        elif line.strip():
            break
    return last
