"""All layers of a step in one call of ``c/forward.c``."""

from __future__ import annotations

import torch

from backends.paged.attention import PagedStep
from backends.paged.fast.compiled import CompiledKernels, address
from backends.paged.fast.declarations import Layer, Model, Step, Weight
from backends.paged.fast.layer import HeadShape, LayerWeights
from backends.paged.fast.linear import CompiledLinear, GatedLinear, Linear


class CompiledLayers:
    """An ``AllLayers``: what ``FastModel`` does layer by layer, without Python between."""

    def __init__(self, kernels: CompiledKernels, layers: list[LayerWeights], shape: HeadShape) -> None:
        """``layers``: with weights that ``kernels`` multiply with."""
        self._kernels = kernels
        self._layers = layers  # the structs point at their tensors
        structs = (Layer * len(layers))(*map(_struct, layers))
        self._model = Model(
            *(len(layers), len(layers[0].mlp_norm)),
            *(shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.eps, shape.scaling),
            structs,
        )

    def __call__(self, hidden: torch.Tensor, rotation: torch.Tensor, step: PagedStep) -> None:
        rows, cache = step.decode, step.cache.slots
        assert rows is not None
        tensors = (rotation, step.slot_mapping, rows.slots, rows.lengths, cache)
        assert all(tensor.is_contiguous() for tensor in (hidden, *tensors))
        struct = Step(
            len(hidden), rows.slots.shape[1], cache.shape[1], *(tensor.data_ptr() for tensor in tensors)
        )
        c = self._kernels.c
        room = self._kernels.room(c.forward_room(self._model, struct))
        c.forward(self._model, struct, hidden.data_ptr(), room)


def _struct(layer: LayerWeights) -> Layer:
    return Layer(
        *(layer.attention_norm.data_ptr(), layer.mlp_norm.data_ptr(), address(layer.qk_norm)),
        *(_weight(part) for part in (layer.qkv, layer.attention_out, layer.gated, layer.mlp_out)),
    )


def _weight(linear: Linear | GatedLinear) -> Weight:
    assert isinstance(linear, CompiledLinear)
    return linear.panels.struct
