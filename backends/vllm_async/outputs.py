"""vLLM's outputs and parameters ↔ this project's."""

from __future__ import annotations

from vllm import SamplingParams as VllmSamplingParams
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind

from backends.base import sample_index
from backends.records import FinishReason
from backends.vllm_async.answers import Choice
from backends.vllm_async.messages import Prompt

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}


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


def choices(output: CompletionOutput, num_logprobs: int | None) -> list[Choice]:
    """The tokens of an output, its text with the last of them: which token brought which character
    is not told where several come at once. A token that ends the text is none of it."""
    token_ids = list(output.token_ids)
    if _ends_with_stop_token(output):
        token_ids.pop()
    last = len(token_ids) - 1
    texts = [output.text if index == last else "" for index in range(len(token_ids))]
    if num_logprobs is None:
        return [Choice(*choice) for choice in zip(token_ids, texts, strict=True)]
    told = [places or {} for places in output.logprobs or ()]
    return [
        Choice(token_id, text, places[token_id].logprob, _most_likely(places, num_logprobs))
        for token_id, text, places in zip(token_ids, texts, told[: len(token_ids)], strict=True)
    ]


def finish_reason(output: CompletionOutput) -> FinishReason:
    """Of an output that has one."""
    return REASONS.get(output.finish_reason or "", FinishReason.ERROR)


def _ends_with_stop_token(output: CompletionOutput) -> bool:
    by_string = isinstance(output.stop_reason, str)
    return output.finish_reason == "stop" and not by_string and len(output.token_ids) > 0


def _most_likely(places: dict[int, Logprob], count: int) -> tuple[tuple[int, float], ...]:
    """vLLM tells of the chosen token as well, however unlikely it was."""
    ranked = [(place.rank or 0, token_id, place.logprob) for token_id, place in places.items()]
    return tuple((token_id, logprob) for rank, token_id, logprob in sorted(ranked) if rank <= count)
