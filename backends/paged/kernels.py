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
    CompiledLinear,
    DenseLinear,
    GatedLinear,
    Int8Linear,
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


DENSE = Kernels("dense", DenseLinear, lambda gate, up: JoinedGated(DenseLinear(torch.cat((gate, up)))))
ONEDNN = Kernels("oneDNN", PackedLinear, PackedGated)
INT8 = Kernels("fbgemm int8", Int8Linear, lambda gate, up: JoinedGated(Int8Linear(torch.cat((gate, up)))))


def of_compiled(kernels: CompiledKernels) -> Kernels:
    """Those of ``kernels.c``."""
    return Kernels(
        "compiled",
        partial(CompiledLinear, kernels),
        lambda gate, up: JoinedGated(CompiledLinear(kernels, torch.cat((gate, up)))),
        kernels.attend_decode,
    )


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
    """Raises ``UnsupportedDtype`` where torch has none."""
    if device.type != "cpu":
        raise UnsupportedDtype(f"--dtype int8 is for a CPU, and this engine runs on {device.type}.")
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        raise UnsupportedDtype("--dtype int8 needs fbgemm, which torch has for x86 processors only.")
    return replace(INT8, attend_decode=float32_kernels(device, folder).attend_decode)
