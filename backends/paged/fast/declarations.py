"""``c/kernels.h`` as ctypes has it."""

from __future__ import annotations

from ctypes import CDLL, POINTER, Structure, c_float, c_int, c_size_t, c_void_p
from typing import ClassVar


class Weight(Structure):
    """``struct weight``"""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("numbers", "bytes", "scales", "bias")),
        *((name, c_size_t) for name in ("inputs", "outputs")),
        ("gated", c_int),
    ]


class Layer(Structure):
    """``struct layer``"""

    _fields_: ClassVar = [
        *((name, c_void_p) for name in ("attention_norm", "mlp_norm", "qk_norm")),
        *((name, Weight) for name in ("qkv", "attention_out", "gate_and_up", "mlp_out")),
    ]


class Model(Structure):
    """``struct model``"""

    _fields_: ClassVar = [
        *((name, c_size_t) for name in ("num_layers", "hidden_size", "heads", "kv_heads", "head_dim")),
        *((name, c_float) for name in ("eps", "scaling")),
        ("layers", POINTER(Layer)),
    ]


class Step(Structure):
    """``struct step``"""

    _fields_: ClassVar = [
        *((name, c_size_t) for name in ("rows", "longest", "slots_of_a_layer")),
        *((name, c_void_p) for name in ("rotation", "writes", "slots", "lengths", "cache")),
    ]


P, Z, F = c_void_p, c_size_t, c_float
FUNCTIONS = {
    "multiply": (None, [POINTER(Weight), P, P, P, Z, P]),
    "multiply_room": (Z, [POINTER(Weight), Z]),
    "rms_norm": (None, [P, P, F, P, Z, Z]),
    "rotate_and_write": (None, [P, P, P, F, P, P, Z, Z, Z, Z]),
    "attend_decode": (None, [P, P, P, P, P, P, Z, Z, Z, Z, Z, Z, F]),
    "forward": (None, [POINTER(Model), POINTER(Step), P, P]),
    "forward_room": (Z, [POINTER(Model), POINTER(Step)]),
}
"""What each returns and takes."""


def declare(library: CDLL) -> CDLL:
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
