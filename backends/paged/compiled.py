"""``kernels.c``, compiled where it runs, and its functions as torch sees them.

torch's own products keep a processor without AVX-512 waiting when a step has only a few rows: see
``benchmarks/NOTES.md``. The C compiler of the machine builds the file in a second, once; where there is
none, or the processor is another, oneDNN computes instead and the header says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from backends.paged.attention import DecodeRows
from backends.paged.kv_cache import KVCache

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-fopenmp"),
    # Sums may be taken in any order: eight at a time. (-ffast-math would change the whole process.)
    *("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
PANEL = 16
"""Outputs side by side in a packed weight, as in ``kernels.c``."""
GROUP = 4
"""Inputs side by side in a packed int8 weight."""
LARGEST_INT8 = 64
"""Of a quantized weight. AVX2 adds pairs of products in 16 bits: 2 · 255 · 64 is the most that fits."""


class CannotCompile(Exception):
    """There is no ``CompiledKernels`` here, and why."""


class NotForThisMachine(CannotCompile):
    """The processor is another, or there is no compiler: nothing was tried."""


class CompiledKernels:
    """The functions of ``kernels.c``. They use torch's own threads, as many as torch uses."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._linear = loaded.linear
        self._linear.restype = None
        self._linear.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_size_t] * 3]
        self._linear_int8 = loaded.linear_int8
        self._linear_int8.restype = None
        self._linear_int8.argtypes = [*[ctypes.c_void_p] * 9, *[ctypes.c_size_t] * 3]
        self._attend_decode = loaded.attend_decode
        self._attend_decode.restype = None
        self._attend_decode.argtypes = [
            *[ctypes.c_void_p] * 6,
            *[ctypes.c_size_t] * 6,
            ctypes.c_float,
        ]

    def linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        num_outputs: int,
    ) -> torch.Tensor:
        """``x [rows, in] Wᵀ + bias + residual`` → ``[rows, num_outputs]``; see ``pack``."""
        x = x.contiguous()
        rows, inputs = x.shape
        y = x.new_empty(rows, num_outputs)
        self._linear(
            x.data_ptr(),
            weight.data_ptr(),
            _address(bias),
            _address(residual),
            y.data_ptr(),
            rows,
            inputs,
            num_outputs,
        )
        return y

    def linear_int8(
        self,
        x: torch.Tensor,
        weight: Int8Weight,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        num_outputs: int,
    ) -> torch.Tensor:
        """The same with int8 weights. Each row of ``x`` is quantized by itself, so no row's result
        depends on the rows beside it."""
        x = x.contiguous()
        rows, inputs = x.shape
        y = x.new_empty(rows, num_outputs)
        quantized = torch.empty(rows, weight.packed.shape[1] * GROUP, dtype=torch.uint8)
        row_scales = x.new_empty(rows, 2)
        self._linear_int8(
            x.data_ptr(),
            weight.packed.data_ptr(),
            weight.scales.data_ptr(),
            weight.sums.data_ptr(),
            _address(bias),
            _address(residual),
            quantized.data_ptr(),
            row_scales.data_ptr(),
            y.data_ptr(),
            rows,
            inputs,
            num_outputs,
        )
        return y

    def attend_decode(
        self, cache: KVCache, layer: int, queries: torch.Tensor, rows: DecodeRows, scaling: float
    ) -> torch.Tensor:
        """What ``attention.attend_decode`` does, without copying K and V. Rows of ``queries`` may lie at
        any distance."""
        num_rows, heads, head_dim = queries.shape
        longest = rows.slots.shape[1]
        kv = cache.slots[layer]
        assert queries.stride()[1:] == (head_dim, 1)
        assert kv.is_contiguous()
        assert rows.slots.is_contiguous()
        output = queries.new_empty(num_rows, heads, head_dim)
        scores = queries.new_empty(num_rows, heads, longest)
        self._attend_decode(
            *(tensor.data_ptr() for tensor in (queries, kv, rows.slots, rows.lengths, scores, output)),
            num_rows,
            heads,
            kv.shape[2],
            head_dim,
            longest,
            queries.stride(0),
            scaling,
        )
        return output


def pack(weight: torch.Tensor) -> torch.Tensor:
    """``[out, in]`` → ``[out / 16, in, 16]``, filled up with zeros."""
    outputs, inputs = weight.shape
    filled = torch.nn.functional.pad(weight, (0, 0, 0, -outputs % PANEL))
    return filled.view(-1, PANEL, inputs).transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Int8Weight:
    """A weight ``[out, in]`` in 8 bits, as ``kernels.c`` reads it; ``out`` filled up to whole panels."""

    packed: torch.Tensor
    """``[out / 16, in / 4, 16, 4]``"""
    scales: torch.Tensor
    """What 1 stands for, of each output ``[out]``."""
    sums: torch.Tensor
    """Of each output's weights ``[out]``."""

    @classmethod
    def of(cls, weight: torch.Tensor) -> Int8Weight:
        outputs, inputs = weight.shape
        filled = torch.nn.functional.pad(weight, (0, -inputs % GROUP, 0, -outputs % PANEL))
        scales = filled.abs().amax(dim=1).clamp_min(1e-12) / LARGEST_INT8
        rounded = (filled / scales[:, None]).round()
        grouped = rounded.to(torch.int8).view(-1, PANEL, filled.shape[1] // GROUP, GROUP)
        return cls(grouped.transpose(1, 2).contiguous(), scales, rounded.sum(dim=1))


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def load(folder: Path) -> CompiledKernels:
    """Compile, or take what was compiled before into ``folder``. Raises ``CannotCompile``."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX2":
        raise NotForThisMachine(f"for processors with AVX2, and this one has {capability}")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotForThisMachine("no C compiler")
    library = folder / f"kernels-{_key(compiler)}.so"
    if not library.exists():
        _compile(compiler, library)
    try:
        return CompiledKernels(library)
    except OSError as error:
        raise CannotCompile(f"{library.name}: {error}") from None


def _compile(compiler: str, library: Path) -> None:
    """To another name first: engines may start at the same time."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        output = Path(folder) / library.name
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(f"{compiler}: {error}") from None
        if done.returncode != 0:
            raise CannotCompile(f"{compiler}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        os.replace(output, library)


def _key(compiler: str) -> str:
    """Another one where source, compiler or processor is another."""
    identity = [SOURCE.read_bytes(), " ".join((*FLAGS, compiler, platform.machine())).encode(), _processor()]
    return hashlib.sha256(b"\0".join(identity)).hexdigest()[:16]


def _processor() -> bytes:
    """What ``-march=native`` looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except FileNotFoundError:  # not Linux
        return platform.processor().encode()
    return b"\n".join(sorted({line for line in lines if line.startswith((b"model name", b"flags"))}))
