"""``c/``, compiled where it runs: in two seconds, once for each processor and compiler."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

FOLDER = Path(__file__).with_name("c")
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-fopenmp"),
    # Sums may be taken in any order: eight at a time. (-ffast-math would change the whole process.)
    *("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
HAVE_AVX2 = ("AVX2", "AVX512")
"""Of torch's names for what a processor can do."""


class CannotCompile(Exception):
    """There are no compiled kernels here, and why."""


class NotForThisMachine(CannotCompile):
    """The processor is another, or there is no compiler: nothing was tried."""


def load(folder: Path) -> ctypes.CDLL:
    """Compile, or take what was compiled before into ``folder``. Raises ``CannotCompile``."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in HAVE_AVX2:
        raise NotForThisMachine(f"for processors with AVX2, and this one has {capability}")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotForThisMachine("no C compiler")
    library = folder / f"kernels-{_key(compiler)}.so"
    if not library.exists():
        _compile(compiler, library)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise CannotCompile(f"{library.name}: {error}") from None


def _compile(compiler: str, library: Path) -> None:
    """To another name first: engines may start at the same time."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        output = Path(folder) / library.name
        sources = sorted(map(str, FOLDER.glob("*.c")))
        command = [compiler, *FLAGS, *sources, "-o", str(output), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(f"{compiler}: {error}") from None
        if done.returncode != 0:
            raise CannotCompile(f"{compiler}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        os.replace(output, library)


def _key(compiler: str) -> str:
    """Another one where source, compiler or processor is another."""
    sources = [path.read_bytes() for path in sorted(FOLDER.iterdir())]
    settings = " ".join((*FLAGS, compiler, platform.machine())).encode()
    return hashlib.sha256(b"\0".join([*sources, settings, _processor()])).hexdigest()[:16]


def _processor() -> bytes:
    """What ``-march=native`` looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except FileNotFoundError:  # not Linux
        return platform.processor().encode()
    return b"\n".join(sorted({line for line in lines if line.startswith((b"model name", b"flags"))}))
