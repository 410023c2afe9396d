"""One product with a weight, and what is fused with it: weights as the device likes to read them."""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
from torch.nn.functional import linear, silu

from backends.paged.fast.compiled import CompiledKernels
from backends.paged.fast.panels import Panels

ROWS_PACKED_FOR = 16
"""Rows that the layout of a packed weight is chosen for; any number can be computed with it."""


class Linear(Protocol):
    """``x [tokens, in]`` → ``[tokens, out]``."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x Wᵀ + b``"""

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """``x Wᵀ + b + residual``"""


class GatedLinear(Protocol):
    """Two products with one input, the first one's result gating the other's (SwiGLU)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``silu(x Gᵀ) * (x Uᵀ)``"""


class DenseLinear:
    """As torch has it: on any device."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight.contiguous()
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self(x).add_(residual)


class PackedLinear:
    """oneDNN's own layout, blocked for the processor's caches.

    What torch's compiler emits for a frozen weight (``torch._inductor.fx_passes.mkldnn_fusion``).
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_PACKED_FOR)
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activated(x, "none")

    def activated(self, x: torch.Tensor, activation: str) -> torch.Tensor:
        """``activation(x Wᵀ + b)``, by oneDNN's name of it: ``none``, ``swish``."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, activation, [], ""
        )
        return result

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.combined(x, residual, "add")

    def combined(self, x: torch.Tensor, other: torch.Tensor, operation: str) -> torch.Tensor:
        """``(x Wᵀ + b) operation other``: ``add``, ``mul``."""
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self.weight, self.bias, operation
        )
        return result


class CompiledLinear:
    """By ``c/``, gated or not: as fast as memory and arithmetic allow for few rows."""

    def __init__(self, kernels: CompiledKernels, panels: Panels) -> None:
        self.panels = panels
        self._kernels = kernels

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._kernels.multiply(self.panels, x)

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self._kernels.multiply(self.panels, x, residual)


LARGEST_FOR_FBGEMM = 64
"""Of a quantized weight. AVX2 adds pairs of products in 16 bits: 2 · 255 · 64 is the most that fits."""


class FbgemmInt8:
    """The same by torch's own kernels, where ours are not there. Inputs share one scale per call, so a
    row's result depends a little on the rows beside it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        scales = weight.abs().amax(dim=1).clamp_min(1e-12) / LARGEST_FOR_FBGEMM
        zeros = torch.zeros(len(scales), dtype=torch.long)
        with warnings.catch_warnings():
            # The quantized tensor types go one day; torch has no other way into fbgemm so far.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            quantized = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(quantized, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, False)
        return result

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self(x).add_(residual)


class JoinedGated:
    """Both products as one."""

    def __init__(self, both: Linear) -> None:
        self.both = both

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return silu(gate).mul_(up)


class PackedGated:
    """Two packed products; activation and multiplication happen while the results are still near."""

    def __init__(self, gate: torch.Tensor, up: torch.Tensor) -> None:
        self.gate = PackedLinear(gate)
        self.up = PackedLinear(up)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.up.combined(x, self.gate.activated(x, "swish"), "mul")
