"""What every worker that runs torch says and does alike. Imported in child processes only."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import torch

from backends.engine_child import WorkerReady


def resolve_device(wanted: str) -> str:
    """``auto`` → ``cuda`` where there is one, else ``cpu``."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe_worker(device: str, dtype: torch.dtype) -> WorkerReady:
    """The ready-ack of a worker."""
    return WorkerReady(
        device=device,
        dtype=str(dtype).removeprefix("torch."),
        hardware=describe_hardware(device),
        versions={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": version("transformers"),
        },
    )


def describe_hardware(device: str) -> str:
    """One line for the header: what computes, with how many threads and how much memory."""
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor_name()}, {torch.get_num_threads()} threads, {memory:.0f} GiB"


def free_memory(device: str) -> int:
    """Bytes that could be taken now."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _processor_name() -> str:
    """The processor's own name; the machine's architecture where it is not told."""
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except FileNotFoundError:  # not Linux
        pass
    return platform.processor() or platform.machine()
