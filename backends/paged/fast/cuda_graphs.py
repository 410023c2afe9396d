"""Recordings on a GPU, by the book: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs"""

from __future__ import annotations

import torch

from backends.paged.fast.graphed import CannotCapture, Compute

WARM_UPS = 3
"""Runs before a recording, in which libraries load and lay out what may not be laid out while one is made."""


class CudaGraphs:
    """Implements ``graphed.Capture``. One graph runs at a time, so all of them work in the same memory."""

    def __init__(self) -> None:
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def __call__(self, compute: Compute) -> Compute:
        try:
            # A recording that breaks off leaves its stream the current one; this takes it back.
            with torch.cuda.stream(torch.cuda.current_stream()):
                graph, output = self._record(compute)
        except RuntimeError as error:  # whatever CUDA refuses, memory included
            raise CannotCapture(str(error).partition("\n")[0]) from error

        def replay() -> torch.Tensor:
            graph.replay()
            return output

        return replay

    def _record(self, compute: Compute) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        _warm_up(compute)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._graphs[0].pool() if self._graphs else None):
            output = compute()
        self._graphs.append(graph)
        return graph, output


def _warm_up(compute: Compute) -> None:
    """On a stream of its own, as recordings are made."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
