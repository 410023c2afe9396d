"""How many tokens a chunk brought, and which text goes with which."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import TokenChunk
from backends.errors import UpstreamError
from backends.records import FinishReason
from backends.remote.answer import Answer
from backends.remote.chunks import BadChunk, read_chunk
from tests.engine_harness import request


class Told:
    """An answer made of chunks, at the times 0, 1, 2 …"""

    def __init__(self, *chunks: dict[str, Any], n: int = 1, max_tokens: int = 10) -> None:
        self.answer = Answer(request("r0", n=n, max_tokens=max_tokens), "The server")
        self.tokens: list[TokenChunk] = []
        self.times: list[float] = []
        for time, chunk in enumerate(chunks):
            arrived = self.answer.take(read_chunk(msgspec.json.encode(chunk)), float(time))
            self.tokens += arrived.tokens
            self.times += [record.time for record in arrived.records]
            assert len(arrived.tokens) == len(arrived.records)

    @property
    def texts(self) -> list[str]:
        return [token.text for token in self.tokens]

    @property
    def last(self) -> TokenChunk:
        [(_, _, last)] = self.answer.endings()
        return last


def said(
    text: str, *, count: int | None = None, reason: str | None = None, index: int = 0, **more: Any
) -> Any:
    usage = None if count is None else {"prompt_tokens": 3, "completion_tokens": count}
    choice = {"index": index, "text": text, "finish_reason": reason} | more
    return {"choices": [choice], "usage": usage}


def end(count: int, prompt: int = 3) -> Any:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": count}}


def test_each_new_token_of_a_chunk_is_one_with_the_same_time() -> None:
    told = Told(said("", count=0), said("a", count=1), said("bcd", count=4), said("", count=5, reason="stop"))
    assert told.texts == ["a", "", "", "bcd", ""]
    assert told.times == [1, 2, 2, 2, 3]
    assert [token.index for token in told.tokens] == [0, 1, 2, 3, 4]


def test_text_without_a_new_token_goes_with_the_next() -> None:
    told = Told(said("a", count=1), said("b", count=1), said("c", count=2, reason="stop"))
    assert told.texts == ["a", "bc"]


def test_text_without_a_new_token_goes_with_the_end_if_none_follows() -> None:
    told = Told(said("a", count=1), said("b", count=1, reason="stop"))
    assert (told.texts, told.last.text) == (["a"], "b")


def test_where_a_chunk_does_not_tell_it_counts_as_one_and_the_sum_at_the_end_is_right() -> None:
    told = Told(said("", reason=None), said("abc"), said("de"), said("", reason="length"), end(7))
    assert told.texts == ["abc", "de"]
    assert (told.last.num_prompt_tokens, told.last.num_output_tokens) == (3, 7)


def test_a_sum_with_the_last_chunk_is_no_live_count() -> None:
    told = Told(said("abc"), said("d", reason="stop", count=7))
    assert told.texts == ["abc", "d"]
    assert told.last.num_output_tokens == 7


def test_counts_that_stay_at_zero_are_not_believed() -> None:
    told = Told(said("a", count=0), said("b", count=0), said("", count=0, reason="stop"))
    assert told.texts == ["a", "b"]
    assert told.last.num_output_tokens is None


def test_without_usage_nothing_is_counted() -> None:
    told = Told(said("a"), said("b", reason="stop"))
    assert (told.last.num_prompt_tokens, told.last.num_output_tokens) == (None, None)


def test_thoughts_are_tokens_but_no_part_of_the_answer() -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    told = Told(thought, said("a", reason="stop"))
    assert told.texts == ["", "a"]


def test_log_probabilities_tell_how_many_tokens_a_chunk_holds() -> None:
    content = [
        {"token": token, "logprob": -1.0, "top_logprobs": [{"token": token, "logprob": -1.0}]}
        for token in ("a", "b")
    ]
    told = Told(said("ab", logprobs={"content": content}, reason="stop"))
    assert told.texts == ["a", "b"]
    assert [token.top_logprobs for token in told.tokens] == [(("a", -1.0),), (("b", -1.0),)]


def test_texts_are_kept_apart_and_each_counts_for_itself() -> None:
    told = Told(
        said("a", count=1),
        said("x", count=1, index=1),
        said("y", count=2, index=1, reason="length"),
        said("", count=2, reason="stop"),
        end(4),
        n=2,
    )
    assert [(token.sample, token.text) for token in told.tokens] == [(0, "a"), (1, "x"), (1, "y"), (0, "")]
    [first, second] = told.answer.endings()
    assert (first[2].finish_reason, second[2].finish_reason) == (FinishReason.STOP, FinishReason.LENGTH)
    assert (first[2].num_output_tokens, second[2].num_output_tokens) == (2, 2)
    assert (first[0], second[0]) == ("r0", "r0/1")
    assert (first[1], second[1]) == (3.0, 2.0)


def test_an_answer_without_an_end_is_broken_off() -> None:
    told = Told(said("a"), said("b"))
    assert not told.answer.is_complete
    with pytest.raises(UpstreamError, match="broke off the answer after 2 tokens"):
        told.answer.endings()


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), max_size=8))
def test_however_a_text_is_cut_nothing_is_lost_and_every_token_is_counted(
    cuts: list[tuple[str, int]],
) -> None:
    cuts = [("x", 1), *cuts]  # it counts live from its first text on
    counts = list(accumulate(count for _, count in cuts))
    chunks = [said(text, count=count) for (text, _), count in zip(cuts, counts, strict=True)]
    total = counts[-1]
    told = Told(*chunks, said("", count=total, reason="stop"), end(total), max_tokens=100)
    assert len(told.tokens) == told.last.num_output_tokens == total
    assert "".join(told.texts) + told.last.text == "".join(text for text, _ in cuts)
    assert [token.index for token in told.tokens] == list(range(len(told.tokens)))


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([said("a", count=11)], "counts 11 tokens, where 10 were asked for"),
        ([said("a", count=3), said("b", count=2)], "counts 2 tokens after 3"),
        ([said("a", reason="stop"), end(11)], "counts 11 tokens, where 10 were asked for"),
        ([said("a", index=1)], "sent text 2 where 1 were asked for"),
        ([said("a", reason="content_filter")], "ended the answer: 'content_filter'"),
        ([said("a", reason="abort")], "ended the answer: 'abort'"),
    ],
)
def test_what_cannot_be_true_is_an_error(chunks: list[Any], words: str) -> None:
    with pytest.raises(UpstreamError, match=words):
        Told(*chunks)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"choices": {}}',
        b'{"choices": [{"text": 5}]}',
        b'{"choices": [{"text": "\xff"}]}',
        b'{"choices": [{"text": "\\ud800"}]}',
        b'{"choices": [{"index": -1}]}',
        b'{"choices": [{"delta": "text"}]}',
        b'{"choices": [{"finish_reason": 1}]}',
        b'{"usage": {"completion_tokens": -1}}',
        b'{"usage": {"completion_tokens": 1.5}}',
        b'{"usage": {"completion_tokens": true}}',
        b'{"usage": {"completion_tokens": "5"}}',
        b'{"usage": {"prompt_tokens": 1e400}}',
        b'{"usage": {"prompt_tokens": 99999999999999999999}}',
        b'{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": NaN}]}}]}',
    ],
    ids=lambda data: ascii(data)[2:50],
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(BadChunk):
        read_chunk(data)


def test_log_probabilities_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadChunk, match="differ in number"):
        Told(said("a", logprobs={"tokens": ["a"], "token_logprobs": [-1.0, -2.0]}))


def test_fields_that_are_not_used_may_be_anything() -> None:
    chunk = read_chunk(b'{"id": [1], "choices": [{"text": "a", "x": {"y": null}}], "timings": {"z": 1e3}}')
    assert chunk.choices is not None
    assert chunk.choices[0].added == "a"
