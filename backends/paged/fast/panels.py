"""Weights as the compiled kernels read them: outputs in panels of 16, so that one vector holds eight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import pad

from backends.paged.fast.declarations import Weight

PANEL = 16
"""Outputs side by side, as in ``c/kernels.h``."""
LINE = 4
"""Inputs are filled up to a multiple of it in int8, as in ``c/linear_int8.c``."""
LARGEST_INT8 = 127
"""Of a quantized weight."""


@dataclass(frozen=True)
class Panels:
    """A weight ``[out, in]`` in panels."""

    struct: Weight
    tensors: tuple[torch.Tensor | None, ...]
    """What ``struct`` points at, alive as long as this is."""

    @classmethod
    def of(cls, num_outputs: int, num_inputs: int, is_gated: bool, **tensors: torch.Tensor | None) -> Panels:
        """``tensors``: by the names of ``struct weight``."""
        addresses = {name: t.data_ptr() for name, t in tensors.items() if t is not None}
        struct = Weight(outputs=num_outputs, inputs=num_inputs, gated=is_gated, **addresses)
        return cls(struct, tuple(tensors.values()))


class Packing(Protocol):
    """One way to lay a weight ``[outputs filled up to whole panels, in]``."""

    def __call__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, num_outputs: int, is_gated: bool
    ) -> Panels: ...


def float_panels(weight: torch.Tensor, bias: torch.Tensor | None, num_outputs: int, is_gated: bool) -> Panels:
    """In float32 ``[panels, in, 16]``."""
    numbers = weight.view(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()
    return Panels.of(num_outputs, weight.shape[1], is_gated, numbers=numbers, bias=bias)


def int8_panels(weight: torch.Tensor, bias: torch.Tensor | None, num_outputs: int, is_gated: bool) -> Panels:
    """In 8 bits ``[panels, in / 2, 16, 2]``, with a scale for each output."""
    inputs = weight.shape[1]
    scales = weight.abs().amax(dim=1).clamp_min(1e-12) / LARGEST_INT8
    rounded = (pad(weight, (0, -inputs % LINE)) / scales[:, None]).round()
    pairs = rounded.to(torch.int8).view(-1, PANEL, rounded.shape[1] // 2, 2)
    return Panels.of(
        num_outputs,
        inputs,
        is_gated,
        bytes=pairs.transpose(1, 2).contiguous(),
        scales=scales,
        bias=bias,
    )


def single(packing: Packing, weight: torch.Tensor, bias: torch.Tensor | None) -> Panels:
    """A weight ``[out, in]`` and its bias ``[out]``."""
    missing = -len(weight) % PANEL
    filled_bias = None if bias is None else pad(bias, (0, missing))
    return packing(pad(weight, (0, 0, 0, missing)), filled_bias, len(weight), False)


def gated(packing: Packing, gate: torch.Tensor, up: torch.Tensor) -> Panels:
    """Two weights ``[out, in]`` as one: each panel eight rows of the first, then the same of the second."""
    half = PANEL // 2
    filled = [pad(weight, (0, 0, 0, -len(weight) % half)) for weight in (gate, up)]
    eights = torch.stack([weight.view(-1, half, weight.shape[1]) for weight in filled], dim=1)
    return packing(eights.view(-1, gate.shape[1]), None, len(gate), True)
