"""Who waits, who runs alone, who shares a static batch, and what a row makes of its tokens."""

from __future__ import annotations

import pytest

from backends.base import SamplingParams
from backends.generate.messages import STATIC
from backends.generate.workload import Row, Workload
from backends.records import FinishReason
from backends.text import OutputText, TextCodec
from backends.worker_messages import AddRequest
from tests.tiny_models import prepare_tiny_model

EOS = 2


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return TextCodec.load(prepare_tiny_model(tmp_path_factory.mktemp("model"), tokenizer="words"))


@pytest.fixture
def workload() -> Workload:
    return Workload(batch_size=3, max_model_len=32)


def row(codec: TextCodec, name: str, *, static: bool = True, prompt: str = " a", **sampling: object) -> Row:
    params = SamplingParams(**{"max_tokens": 4, "temperature": 0.7, **sampling})
    ids = codec.encode(prompt)
    request = AddRequest(request_id=name, prompt_ids=ids, sampling=params, mode=STATIC if static else None)
    return Row(request, OutputText(codec.detokenizer(ids), params.stop), most_tokens=params.max_tokens)


def next_names(workload: Workload) -> str:
    names = " ".join(row.request_id for row in workload.next_batch())
    workload.end_batch()
    return names


def test_a_sequential_request_runs_alone_in_its_turn(workload: Workload, codec: TextCodec) -> None:
    for name, static in [("A", False), ("b", True), ("C", False), ("d", True)]:
        workload.add(row(codec, name, static=static))
    assert [next_names(workload) for _ in range(3)] == ["A", "b d", "C"]


def test_a_static_batch_takes_as_many_as_there_are_places(workload: Workload, codec: TextCodec) -> None:
    for name in "abcd":
        workload.add(row(codec, name))
    assert [next_names(workload), next_names(workload)] == ["a b c", "d"]


@pytest.mark.parametrize("other", [{"temperature": 0.2}, {"top_p": 0.5}, {"top_k": 3}])
def test_only_those_with_the_same_way_of_sampling_share_a_batch(
    other: dict[str, object], workload: Workload, codec: TextCodec
) -> None:
    for waiting in (row(codec, "a"), row(codec, "b", **other), row(codec, "c", max_tokens=2, stop=("x",))):
        workload.add(waiting)
    assert [next_names(workload), next_names(workload)] == ["a c", "b"]


def test_greedy_requests_share_a_batch_whatever_else_they_ask_for(
    workload: Workload, codec: TextCodec
) -> None:
    workload.add(row(codec, "a", temperature=0))
    workload.add(row(codec, "b", temperature=0, top_p=0.5, top_k=7))
    assert next_names(workload) == "a b"


def test_the_longest_answer_must_fit_behind_the_longest_prompt(workload: Workload, codec: TextCodec) -> None:
    workload.add(row(codec, "long prompt", prompt=" a" * 28))
    workload.add(row(codec, "long answer", max_tokens=31))
    workload.add(row(codec, "short"))
    assert [next_names(workload), next_names(workload)] == ["long prompt short", "long answer"]


def test_a_waiting_request_that_is_aborted_is_gone_at_once(workload: Workload, codec: TextCodec) -> None:
    workload.add(row(codec, "a"))
    ended = workload.abort("a")
    assert ended is not None
    assert (ended.request_id, ended.reason) == ("a", FinishReason.ABORT)
    assert not workload.has_work()
    assert workload.abort("a") is None


def test_a_row_aborted_between_steps_is_told_at_once_and_stays_in_its_static_batch(
    workload: Workload, codec: TextCodec
) -> None:
    workload.add(row(codec, "a"))
    workload.add(row(codec, "b"))
    batch = workload.next_batch()
    assert workload.abort("a") is not None
    assert workload.has_live_rows()
    workload.begin_step()
    with workload.step_end() as step_end:
        step_end.tell(batch)
    assert step_end.ended == []
    assert workload.abort("b") is not None
    assert not workload.has_live_rows()


def test_a_row_aborted_during_a_step_is_told_at_its_end(workload: Workload, codec: TextCodec) -> None:
    workload.add(row(codec, "a"))
    workload.add(row(codec, "b"))
    batch = workload.next_batch()
    workload.begin_step()
    assert workload.abort("a") is None
    with workload.step_end() as step_end:
        step_end.tell(batch)
    assert [ended.request_id for ended in step_end.ended] == ["a"]
    assert step_end.finished_ids == [], "it was told, but its row cannot leave"


def test_a_static_batch_tells_its_tokens_when_the_longest_row_is_done(
    workload: Workload, codec: TextCodec
) -> None:
    workload.add(row(codec, "a", max_tokens=1))
    workload.add(row(codec, "b", max_tokens=2))
    batch = workload.next_batch()
    (word,) = codec.encode(" da")
    told = []
    for step_id in range(2):
        workload.begin_step()
        with workload.step_end() as step_end:
            for each in batch:
                if each.live:
                    each.take(word, step_id, frozenset({EOS}))
            step_end.tell(batch)
        told.append([(token.request_id, token.step_id) for token in step_end.tokens])
    assert told == [[], [("a", 0), ("b", 0), ("b", 1)]]
    assert step_end.finished_ids == ["a", "b"]


def take_all(taken: Row, ids: list[int]) -> list[str]:
    for step_id, token_id in enumerate(ids):
        if taken.live:
            taken.take(token_id, step_id, frozenset({EOS}))
    return [token.text for token in taken.take_undelivered()]


def test_a_row_ends_at_exactly_its_limit(codec: TextCodec) -> None:
    limited = row(codec, "a", max_tokens=3)
    assert take_all(limited, codec.encode(" a b c d e")) == [" a", " b", " c"]
    assert limited.finish_reason is FinishReason.LENGTH


def test_a_row_ends_at_the_end_token_which_is_no_token_of_the_answer(codec: TextCodec) -> None:
    ended = row(codec, "a")
    assert take_all(ended, [*codec.encode(" a"), EOS, *codec.encode(" b")]) == [" a"]
    assert ended.finish_reason is FinishReason.STOP


def test_a_row_that_ignores_the_end_token_goes_on(codec: TextCodec) -> None:
    going_on = row(codec, "a", ignore_eos=True)
    assert take_all(going_on, [*codec.encode(" a"), EOS, *codec.encode(" b c")]) == [" a", "", " b", " c"]
    assert going_on.finish_reason is FinishReason.LENGTH


def test_a_row_ends_before_its_stop_string(codec: TextCodec) -> None:
    stopped = row(codec, "a", max_tokens=9, stop=("b c",))
    assert take_all(stopped, codec.encode(" a b c d")) == [" a", " ", ""]
    assert stopped.finish_reason is FinishReason.STOP


def test_text_held_back_for_a_stop_string_comes_when_the_answer_ends_without_it(codec: TextCodec) -> None:
    by_limit = row(codec, "a", max_tokens=2, stop=("b c",))
    assert take_all(by_limit, codec.encode(" a b")) == [" a", " b"]
    by_end_token = row(codec, "b", stop=("b c",))
    assert take_all(by_end_token, [*codec.encode(" a b"), EOS]) == [" a", " "]
    assert by_end_token.ended().text == "b"
