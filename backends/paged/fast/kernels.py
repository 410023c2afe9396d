"""What computes the products and the attention of a fast model, chosen by what the machine has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from backends.paged.attention import AttendDecode, attend_decode
from backends.paged.fast import compiler
from backends.paged.fast.between import RMSNorm, RotateAndWrite, rms_norm, rotate_and_write
from backends.paged.fast.compiled import CompiledKernels
from backends.paged.fast.compiled_layers import CompiledLayers
from backends.paged.fast.compiler import CannotCompile
from backends.paged.fast.layer import AllLayers, HeadShape, LayerWeights
from backends.paged.fast.linear import (
    CompiledLinear,
    DenseLinear,
    FbgemmInt8,
    GatedLinear,
    JoinedGated,
    Linear,
    PackedGated,
    PackedLinear,
)
from backends.paged.fast.panels import Packing, float_panels, gated, int8_panels, single


class UnsupportedDtype(Exception):
    """No kernels for it here."""


@dataclass(frozen=True)
class Kernels:
    """One way to compute what a layer is made of."""

    name: str
    linear: Callable[[torch.Tensor, torch.Tensor | None], Linear]
    """Weight ``[out, in]`` and bias ``[out]`` → the product with them."""
    gated: Callable[[torch.Tensor, torch.Tensor], GatedLinear]
    """Gate and up, each ``[out, in]``."""
    rms_norm: RMSNorm = rms_norm
    rotate_and_write: RotateAndWrite = rotate_and_write
    attend_decode: AttendDecode = attend_decode
    all_layers: Callable[[list[LayerWeights], HeadShape], AllLayers] | None = None
    """Where they can be computed in one go."""
    split_up_to: int = 1
    """Of prompts up to so many tokens, each is a decode row of its own: where starting an operation
    costs more than reading K and V again for every token."""


def _joined(name: str, linear: Callable[[torch.Tensor, torch.Tensor | None], Linear]) -> Kernels:
    """Gate and up are one product with both weights."""
    return Kernels(name, linear, lambda gate, up: JoinedGated(linear(torch.cat((gate, up)), None)))


DENSE = _joined("dense", DenseLinear)
ONEDNN = Kernels("oneDNN", PackedLinear, PackedGated)
FBGEMM = _joined("fbgemm int8", FbgemmInt8)


def of_compiled(kernels: CompiledKernels) -> Kernels:
    """All by ``c/``."""
    return _compiled("compiled", kernels, float_panels)


def of_compiled_int8(kernels: CompiledKernels) -> Kernels:
    """All by ``c/``: int8 weights with a scale per output, inputs with one per row, a quarter of the bytes.

    Another model, strictly: see ``quality.py``.
    """
    return _compiled("compiled int8", kernels, int8_panels)


def _compiled(name: str, kernels: CompiledKernels, packing: Packing) -> Kernels:
    return Kernels(
        name,
        linear=lambda weight, bias: CompiledLinear(kernels, single(packing, weight, bias)),
        gated=lambda gate, up: CompiledLinear(kernels, gated(packing, gate, up)),
        rms_norm=kernels.rms_norm,
        rotate_and_write=kernels.rotate_and_write,
        attend_decode=kernels.attend_decode,
        all_layers=partial(CompiledLayers, kernels),
        split_up_to=256,
    )


def float32_kernels(device: torch.device, folder: Path) -> Kernels:
    """The fastest that compute in full precision on ``device``; ``folder`` keeps what is compiled."""
    if device.type != "cpu":
        return DENSE
    try:
        return of_compiled(CompiledKernels(compiler.load(folder)))
    except CannotCompile as reason:
        has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        other = ONEDNN if has_onednn else DENSE
        return replace(other, name=f"{other.name} ({reason})")


def int8_kernels(device: torch.device, folder: Path) -> Kernels:
    """Raises ``UnsupportedDtype`` where there are none."""
    if device.type != "cpu":
        raise UnsupportedDtype(f"--dtype int8 is for a CPU, and this engine runs on {device.type}.")
    try:
        return of_compiled_int8(CompiledKernels(compiler.load(folder)))
    except CannotCompile as reason:
        if "fbgemm" not in torch.backends.quantized.supported_engines:
            raise UnsupportedDtype(
                f"--dtype int8 has no kernels on this processor: fbgemm is for x86, and ours {reason}."
            ) from None
        return replace(FBGEMM, name=f"{FBGEMM.name} ({reason})")
