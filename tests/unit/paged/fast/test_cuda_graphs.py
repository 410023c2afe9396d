"""What CUDA is asked for, in which order; whether it does it, only a GPU can tell (``test_paged.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from backends.paged.fast.cuda_graphs import CudaGraphs
from backends.paged.fast.graphed import CannotCapture


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to a CUDA that does nothing."""
    said: list[str] = []

    class Stream:
        def wait_stream(self, other: Stream) -> None:
            said.append("wait")

    class Graph:
        def pool(self) -> str:
            return "the first one's memory"

        def replay(self) -> None:
            said.append("replay")

    @contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        yield

    @contextmanager
    def graph(graph: Graph, pool: str | None) -> Iterator[None]:
        said.append(f"record in {pool}")
        yield
        said.append("recorded")

    fakes = {"Stream": Stream, "current_stream": Stream, "CUDAGraph": Graph, "stream": stream, "graph": graph}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return said


def test_recordings_are_made_after_a_warm_up_and_share_their_memory(said: list[str]) -> None:
    capture = CudaGraphs()

    def compute() -> torch.Tensor:
        said.append("compute")
        return torch.ones(1)

    replay = capture(compute)
    capture(compute)
    warm_up = ["wait", *["compute"] * 3, "wait"]
    assert said == [
        *(*warm_up, "record in None", "compute", "recorded"),
        *(*warm_up, "record in the first one's memory", "compute", "recorded"),
    ]
    said.clear()
    assert replay() is replay()
    assert said == ["replay"] * 2


def test_what_cuda_refuses_is_told_in_one_line(said: list[str]) -> None:
    def compute() -> torch.Tensor:
        if "record in None" in said:
            raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_…")
        return torch.ones(1)

    with pytest.raises(CannotCapture, match=r"^operation not permitted when stream is capturing$"):
        CudaGraphs()(compute)
