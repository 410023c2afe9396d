"""One prepared folder in the cache: found whole, or made anew, by one process at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from backends.models import manifest as manifests
from backends.models.convert import convert_folder, convert_gguf
from backends.models.describe import PreparedModel, describe
from backends.models.hub import fetch
from backends.models.locate import Folder, GgufFile, HubRepository, Source
from backends.models.manifest import Manifest

Report = Callable[[float, str], None]
CHECKSUMS_FROM = 0.9
"""Where in the progress the checksums begin; the conversion has what is before."""


def find_untouched(source: Source, cache_dir: Path) -> PreparedModel | None:
    """The prepared model, if the cheap check finds all its files as they were. Needs no lock."""
    folder = cache_dir / source.key
    manifest = manifests.read_manifest(folder)
    if manifest is None or not manifests.looks_untouched(folder, manifest):
        return None
    return _placed(manifest.model, folder)


def build(source: Source, cache_dir: Path, report: Report) -> PreparedModel:
    """Find or make the prepared folder. Blocks; another process at the same work is waited for.

    Raises ``EngineUnavailable``.
    """
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _locked(cache_dir / f"{source.key}.lock", report):
        model = find_untouched(source, cache_dir) or _find_intact(source, cache_dir, report)
        return model or _make(source, cache_dir, report)


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(0.0, "Waiting for another process that prepares the same model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _find_intact(source: Source, cache_dir: Path, report: Report) -> PreparedModel | None:
    """After the cheap check failed: compare checksums. Right ones get their new times noted."""
    folder = cache_dir / source.key
    manifest = manifests.read_manifest(folder)
    if manifest is None:
        return None
    sentence = f"Checking the files of {source.name}, which were touched"
    files = manifests.intact_files(folder, manifest, lambda fraction: report(fraction * 0.1, sentence))
    if files is None:
        report(0.0, f"The files of {source.name} are damaged; making them anew")
        return None
    manifests.write_manifest(folder, Manifest(model=manifest.model, files=files))
    return _placed(manifest.model, folder)


def _make(source: Source, cache_dir: Path, report: Report) -> PreparedModel:
    """Everything is written beside the place, then moved into it: a folder there is whole."""
    folder = cache_dir / source.key
    prefix = f".{source.key}."
    for leftover in cache_dir.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(leftover)
    if source.note:
        report(0.0, source.note)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache_dir) as scratch:
        unfinished = Path(scratch) / source.key
        unfinished.mkdir()
        _convert(source, unfinished, lambda fraction, sentence: report(fraction * CHECKSUMS_FROM, sentence))
        files = manifests.checksum_files(
            unfinished,
            lambda fraction: report(CHECKSUMS_FROM + fraction * (1 - CHECKSUMS_FROM), "Computing checksums"),
        )
        model = describe(unfinished, source.name, manifests.combined_checksum(files))
        manifests.write_manifest(unfinished, Manifest(model=model, files=files))
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
    return _placed(model, folder)


def _convert(source: Source, folder: Path, report: Report) -> None:
    match source.where:
        case GgufFile(path):
            convert_gguf(path, folder, report)
        case Folder(path):
            convert_folder(path, folder, report)
        case HubRepository(repository):
            fetched = fetch(repository, lambda fraction: report(fraction * 0.8, f"Downloading {repository}"))
            convert_folder(fetched, folder, lambda fraction, text: report(0.8 + fraction * 0.2, text))


def _placed(model: PreparedModel, folder: Path) -> PreparedModel:
    """The folder may have been moved since its manifest was written."""
    return msgspec.structs.replace(model, path=str(folder), tokenizer_file=str(folder / "tokenizer.json"))
