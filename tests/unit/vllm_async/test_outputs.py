"""What vLLM's output processor gives, token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.vllm_async.outputs import choices


@dataclass
class Place:
    """``vllm.logprobs.Logprob``."""

    logprob: float
    rank: int
    decoded_token: str | None


@dataclass
class Output:
    """``vllm.outputs.CompletionOutput``, as far as it is read."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Place]] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = field(default=None)


def test_two_tokens_at_once_have_their_own_texts_where_the_probabilities_name_them() -> None:
    output = Output(
        " a batch",
        [5, 6],
        [{5: Place(-0.1, 1, " a"), 9: Place(-3.0, 2, " the")}, {6: Place(-0.2, 1, " batch")}],
    )
    first, second = choices(output, 2)
    assert (first.text, first.logprob, first.top_logprobs) == (" a", -0.1, ((5, -0.1), (9, -3.0)))
    assert (second.text, second.logprob) == (" batch", -0.2)


def test_no_text_is_given_before_it_is_told() -> None:
    output = Output(" a", [5, 6], [{5: Place(-0.1, 1, " a")}, {6: Place(-0.2, 1, " STO")}])
    assert [choice.text for choice in choices(output, 1)] == ["", " a"]


def test_without_probabilities_the_last_of_several_tokens_brings_the_text() -> None:
    assert [choice.text for choice in choices(Output(" a batch", [5, 6]), None)] == ["", " a batch"]


def test_the_token_that_ends_a_text_is_none_of_it() -> None:
    ended = Output(" a", [5, 2], [{5: Place(-0.1, 1, " a")}, {2: Place(0.0, 1, "</s>")}], "stop", 2)
    assert [(choice.token_id, choice.text) for choice in choices(ended, 1)] == [(5, " a")]


def test_a_chosen_token_that_was_unlikely_is_none_of_the_most_likely() -> None:
    output = Output(" x", [7], [{7: Place(-9.0, 40, " x"), 5: Place(-0.1, 1, " a")}])
    [choice] = choices(output, 1)
    assert (choice.logprob, choice.top_logprobs) == (-9.0, ((5, -0.1),))
