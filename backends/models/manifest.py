"""What the files of a prepared model must be, and whether they still are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from backends.models.describe import PreparedModel

MANIFEST = "manifest.json"
READ_SIZE = 1 << 22


class FileEntry(msgspec.Struct, frozen=True):
    size: int
    mtime_ns: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written last, so a folder without one is not finished."""

    model: PreparedModel
    files: dict[str, FileEntry]


def checksum_files(folder: Path, on_fraction: Callable[[float], None]) -> dict[str, FileEntry]:
    """Size, time and SHA-256 of every file of a folder."""
    paths = sorted(path for path in folder.iterdir() if path.name != MANIFEST)
    total = sum(path.stat().st_size for path in paths)
    done = 0
    entries = {}
    for path in paths:
        stat = path.stat()
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(READ_SIZE):
                digest.update(block)
                done += len(block)
                on_fraction(done / total)
        entries[path.name] = FileEntry(stat.st_size, stat.st_mtime_ns, digest.hexdigest())
    return entries


def combined_checksum(files: dict[str, FileEntry]) -> str:
    """One SHA-256 for a folder: over the names and checksums of its files, sorted."""
    lines = (f"{name} {entry.sha256}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))


def read_manifest(folder: Path) -> Manifest | None:
    """``None`` where there is none, or none that can be read."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def looks_untouched(folder: Path, manifest: Manifest) -> bool:
    """The cheap check of every start: all files are there, with their size and time."""
    for name, entry in manifest.files.items():
        try:
            stat = (folder / name).stat()
        except OSError:
            return False
        if (stat.st_size, stat.st_mtime_ns) != (entry.size, entry.mtime_ns):
            return False
    return True


def intact_files(
    folder: Path, manifest: Manifest, on_fraction: Callable[[float], None]
) -> dict[str, FileEntry] | None:
    """The full check, when the cheap one fails: the entries as they are now, if every checksum is
    what it must be (a copied or touched folder); else ``None``."""
    if any(not (folder / name).is_file() for name in manifest.files):
        return None
    now = checksum_files(folder, on_fraction)
    same = {name: entry.sha256 for name, entry in now.items()} == {
        name: entry.sha256 for name, entry in manifest.files.items()
    }
    return now if same else None
