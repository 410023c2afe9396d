"""This project's sampling parameters → vLLM's."""

from __future__ import annotations

from vllm import SamplingParams as VllmSamplingParams
from vllm.sampling_params import RequestOutputKind

from backends.base import sample_index
from backends.vllm_async.messages import NUM_TOLD, Prompt


def vllm_sampling(prompt: Prompt, kind: RequestOutputKind, num_told: int) -> VllmSamplingParams:
    """The n-th text of a request draws with the n-th seed after its own, as vLLM's own ``n`` does.

    ``num_told``: messages that were sent to the tap before.
    """
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
        extra_args={NUM_TOLD: num_told},
    )
