"""Tiny models and their workers, each made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from backends.naive.messages import WorkerConfig
from backends.naive.model_worker import ModelWorker, load_worker
from tests.tiny_models import Architecture, TokenizerKind, make_tiny_model

torch.set_num_threads(1)
"""Tiny models lose more to the hand-over between threads than they gain."""

WorkerOf = Callable[[Architecture, TokenizerKind], ModelWorker]


@pytest.fixture(scope="session")
def worker_of(tmp_path_factory: pytest.TempPathFactory) -> WorkerOf:
    """Architecture and tokenizer → a naive worker of a tiny random model."""

    @cache
    def load(architecture: Architecture, tokenizer: TokenizerKind) -> ModelWorker:
        folder: Path = tmp_path_factory.mktemp(f"{architecture}-{tokenizer}")
        make_tiny_model(folder, architecture, tokenizer=tokenizer)
        return load_worker(WorkerConfig(model_path=str(folder), device="cpu", eos_token_ids=[2]), "cpu")

    return load
