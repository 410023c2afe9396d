"""vLLM's outputs → this project's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.records import FinishReason
from backends.vllm_async.answers import Choice

if TYPE_CHECKING:
    from vllm.logprobs import Logprob
    from vllm.outputs import CompletionOutput

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}


def choices(output: CompletionOutput, num_logprobs: int | None) -> list[Choice]:
    """The tokens of an output with their text. A token that ends the text is none of it."""
    token_ids = list(output.token_ids)
    if _ends_with_stop_token(output):
        token_ids.pop()
    if num_logprobs is None:
        texts = _all_with_the_last(output.text, len(token_ids))
        return [Choice(*choice) for choice in zip(token_ids, texts, strict=True)]
    told = [places or {} for places in output.logprobs or ()][: len(token_ids)]
    texts = [places[token_id].decoded_token or "" for token_id, places in zip(token_ids, told, strict=True)]
    if "".join(texts) != output.text:  # part of a character or of a stop string is held back
        texts = _all_with_the_last(output.text, len(token_ids))
    return [
        Choice(token_id, text, places[token_id].logprob, _most_likely(places, num_logprobs))
        for token_id, text, places in zip(token_ids, texts, told, strict=True)
    ]


def _all_with_the_last(text: str, num_tokens: int) -> list[str]:
    """Which token brought which character is not told where several come at once."""
    return [text if index == num_tokens - 1 else "" for index in range(num_tokens)]


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
