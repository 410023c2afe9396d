"""A hub id → a local folder. Only here does this project ask the network for a model."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm import tqdm

from backends.errors import EngineUnavailable
from backends.models.describe import read_json, unsupported_reason

SMALL_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]
SAFETENSORS = ["*.safetensors"]
OLDER_WEIGHTS = ["pytorch_model*.bin"]

OnFraction = Callable[[float], None]


def fetch(repository: str, on_fraction: OnFraction) -> Path:
    """Download what is not there yet: the small files, then, if the architecture can run here,
    the weights. A snapshot that is complete needs no network.

    Raises ``EngineUnavailable`` in plain words.
    """
    try:
        return _fetch(repository, on_fraction)
    except GatedRepoError as error:
        raise EngineUnavailable(
            f"{repository} is gated: accept its licence on the hub and set HF_TOKEN."
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise EngineUnavailable(f"There is no model {repository!r} on the hub.") from error
    except LocalEntryNotFoundError as error:
        raise EngineUnavailable(
            f"{repository} is not on this machine and the hub cannot be reached. "
            "Connect once, or use --model smollm2, which needs no network."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise EngineUnavailable(f"Downloading {repository} failed: {error}") from error


def _fetch(repository: str, on_fraction: OnFraction) -> Path:
    folder = Path(snapshot_download(repository, allow_patterns=SMALL_FILES))
    if not (folder / "config.json").is_file():
        raise EngineUnavailable(f"{repository} holds no model: there is no config.json in it.")
    reason = unsupported_reason(read_json(folder / "config.json"))
    if reason is not None:
        raise EngineUnavailable(reason)
    bar = _bar_that_tells(on_fraction)
    snapshot_download(repository, allow_patterns=SAFETENSORS, tqdm_class=bar)
    if not any(folder.glob("*.safetensors")):
        snapshot_download(repository, allow_patterns=OLDER_WEIGHTS, tqdm_class=bar)
    return folder


def _bar_that_tells(on_fraction: OnFraction) -> type[tqdm[Any]]:
    """A progress bar that draws nothing and tells how much of the bytes is here."""

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self.unit == "B" and self.total:
                on_fraction(min(1.0, self.n / self.total))
            return drawn

    return Bar
