"""What a CUDA graph does, on a CPU: operations with the tensors and numbers they had, done again, each
result written into the memory of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MUST_WAIT = {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "equal", "lift_fresh"}
"""Operations that bring numbers from the device, or to it: a GPU refuses them while it records."""


class Tape(TorchDispatchMode):
    """Notes every operation that torch does while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in MUST_WAIT:
            raise RuntimeError(f"{func} is not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, recorded in self.operations:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(recorded), tree_leaves(again), strict=True):
                if isinstance(new, torch.Tensor) and _memory(old) != _memory(new):  # else a view, or in place
                    old.copy_(new)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def on_tape(compute: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A ``graphed.Capture``."""
    tape = Tape()
    with tape:
        output = compute()

    def replay() -> torch.Tensor:
        tape.replay()
        return output

    return replay
