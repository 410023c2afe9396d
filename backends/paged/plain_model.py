"""The model as transformers has it, with our attention in place of its own: the code to read first.

``fast/model.py`` computes the same with fewer and faster operations, for the models it knows.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from backends.paged.attention import PagedStep, attend, attend_decode

ATTENTION = "servescope_paged"
UNKNOWN_TO_US = ("sliding_window", "softcap", "s_aux", "sinks", "chunk_size")
"""Arguments by which a model asks for another kind of attention."""


class UnsupportedAttention(Exception):
    """The model asks for something that this attention does not do."""


class PlainModel:
    """Implements ``model_runner.Model`` with transformers' own modules."""

    split_up_to = 1

    def __init__(self, model: Any, why: str | None = None) -> None:
        """``why``: what keeps ``FastModel`` from it, where that was asked for."""
        self.kernels = "plain" if why is None else f"plain ({why})"
        self.model = model
        model.set_attn_implementation(ATTENTION)

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, step: PagedStep, last_tokens: torch.Tensor
    ) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,  # ours is written by paged_attention
            logits_to_keep=last_tokens,
            paged=step,
        ).logits[0]
        return logits


def load_model(path: str, device: str) -> Any:
    """A prepared model, with transformers' own attention."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    return model.to(device).eval()


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged: PagedStep,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Write K and V of this layer, then let every row attend to its own slots.

    transformers calls it in place of its own (``AttentionInterface``), once a layer:
    ``query [1, heads, tokens, head_dim]``, ``key`` and ``value [1, kv_heads, tokens, head_dim]``;
    returns ``[1, tokens, heads, head_dim]``.
    """
    _refuse_unknown(module, others)
    layer: int = module.layer_idx  # type: ignore[assignment]
    kv = torch.stack((key[0], value[0])).permute(2, 0, 1, 3)  # [tokens, 2, kv_heads, head_dim]
    paged.cache.write(layer, kv, paged.slot_mapping)
    queries = query[0].transpose(0, 1)
    return attend(paged, layer, queries, scaling, attend_decode).unsqueeze(0), None


def _refuse_unknown(module: torch.nn.Module, others: dict[str, Any]) -> None:
    for name in UNKNOWN_TO_US:
        if others.get(name) is not None:
            raise UnsupportedAttention(f"{type(module).__name__} asks for {name}, which is not done here.")


AttentionInterface.register(ATTENTION, paged_attention)
