"""What computes the products and the attention of a fast model, chosen by what the machine has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from backends.paged import compiled
from backends.paged.attention import AttendDecode, attend_decode
from backends.paged.compiled import CannotCompile, CompiledKernels
from backends.paged.linear import (
    CompiledInt8,
    CompiledLinear,
    DenseLinear,
    FbgemmInt8,
    GatedLinear,
    JoinedGated,
    Linear,
    PackedGated,
    PackedLinear,
)


class UnsupportedDtype(Exception):
    """No kernels for it here."""


@dataclass(frozen=True)
class Kernels:
    """One way to compute a model's products, and the attention of decoding rows."""

    name: str
    linear: Callable[[torch.Tensor, torch.Tensor | None], Linear]
    """Weight ``[out, in]`` and bias ``[out]`` → the product with them."""
    gated: Callable[[torch.Tensor, torch.Tensor], GatedLinear]
    """Gate and up, each ``[out, in]``."""
    attend_decode: AttendDecode = attend_decode


def _joined(
    name: str,
    linear: Callable[[torch.Tensor, torch.Tensor | None], Linear],
    attend_decode: AttendDecode = attend_decode,
) -> Kernels:
    """Gate and up are one product with both weights."""
    return Kernels(
        name, linear, lambda gate, up: JoinedGated(linear(torch.cat((gate, up)), None)), attend_decode
    )


DENSE = _joined("dense", DenseLinear)
ONEDNN = Kernels("oneDNN", PackedLinear, PackedGated)
FBGEMM = _joined("fbgemm int8", FbgemmInt8)


def of_compiled(kernels: CompiledKernels) -> Kernels:
    """Those of ``kernels.c``."""
    return _joined("compiled", partial(CompiledLinear, kernels), kernels.attend_decode)


def of_compiled_int8(kernels: CompiledKernels) -> Kernels:
    """Those of ``kernels.c``, with int8 weights."""
    return _joined("compiled int8", partial(CompiledInt8, kernels), kernels.attend_decode)


def float32_kernels(device: torch.device, folder: Path) -> Kernels:
    """The fastest that compute in full precision on ``device``; ``folder`` keeps what is compiled."""
    if device.type != "cpu":
        return DENSE
    try:
        return of_compiled(compiled.load(folder))
    except CannotCompile as reason:
        has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        other = ONEDNN if has_onednn else DENSE
        return replace(other, name=f"{other.name} ({reason})")


def int8_kernels(device: torch.device, folder: Path) -> Kernels:
    """Raises ``UnsupportedDtype`` where there are none."""
    if device.type != "cpu":
        raise UnsupportedDtype(f"--dtype int8 is for a CPU, and this engine runs on {device.type}.")
    try:
        return of_compiled_int8(compiled.load(folder))
    except CannotCompile as reason:
        if "fbgemm" not in torch.backends.quantized.supported_engines:
            raise UnsupportedDtype(
                f"--dtype int8 has no kernels on this processor: fbgemm is for x86, and ours {reason}."
            ) from None
        return replace(FBGEMM, name=f"{FBGEMM.name} ({reason})")
