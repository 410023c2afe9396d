"""One product with a weight, and what may be fused with it: the weights as a CPU likes to read them."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn.functional import linear, silu

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
    """As torch has it: everywhere, GPUs too."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight.contiguous()
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)

    def plus(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self(x).add_(residual)


class DenseGated:
    """Both products as one."""

    def __init__(self, gate: torch.Tensor, up: torch.Tensor) -> None:
        self.both = DenseLinear(torch.cat((gate, up)))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return silu(gate).mul_(up)


class PackedLinear:
    """oneDNN's own layout, blocked for the cache: 2 to 3 times ``DenseLinear`` for 4 to 16 rows.

    What torch's compiler emits for a frozen weight (``torch._inductor.fx_passes.mkldnn_fusion``).
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_PACKED_FOR)
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activated(x, "none")

    def activated(self, x: torch.Tensor, activation: str) -> torch.Tensor:
        """``activation(x Wᵀ + b)``; oneDNN's name of it: ``none``, ``swish``."""
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


class PackedGated:
    """Two packed products; activation and multiplication happen while the results are still near."""

    def __init__(self, gate: torch.Tensor, up: torch.Tensor) -> None:
        self.gate = PackedLinear(gate)
        self.up = PackedLinear(up)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.up.combined(x, self.gate.activated(x, "swish"), "mul")
