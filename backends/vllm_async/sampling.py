"""This project's sampling parameters → vLLM's."""

from __future__ import annotations

from vllm import SamplingParams as VllmSamplingParams
from vllm.sampling_params import RequestOutputKind

from backends.base import sample_index
from backends.vllm_async.messages import Prompt


def vllm_sampling(prompt: Prompt, kind: RequestOutputKind) -> VllmSamplingParams:
    """The n-th text of a request draws with the n-th seed after its own, as vLLM's own ``n`` does."""
    ours = prompt.sampling
    seed = None if ours.seed is None else ours.seed + sample_index(prompt.request_id)
    return VllmSamplingParams(
        max_tokens=ours.max_tokens,
        temperature=ours.temperature,
        top_p=ours.top_p,
        top_k=ours.top_k,
        seed=seed,
        stop=list(ours.stop) or None,
        logprobs=ours.logprobs,
        ignore_eos=ours.ignore_eos,
        output_kind=kind,
    )
