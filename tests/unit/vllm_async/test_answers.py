"""A request's text from one side, its steps from the other: what is told, and when."""

from __future__ import annotations

from collections.abc import Sequence

from backends.base import SamplingParams
from backends.records import AnyRecord, FinishReason, TokenEmitted
from backends.vllm_async.answers import Answer, Choice, Chosen
from backends.worker_messages import Ended, Token


class Told:
    """What an answer has sent."""

    def __init__(self, *, with_tap: bool = True) -> None:
        self.records: list[AnyRecord] = []
        self.tokens: list[Token] = []
        self.ended: list[Ended] = []
        self.answer = Answer("r", SamplingParams(), self._take, with_tap=with_tap)

    def _take(self, records: Sequence[AnyRecord], tokens: Sequence[Token], ended: Sequence[Ended]) -> None:
        assert not self.ended, "nothing follows the end"
        self.records += records
        self.tokens += tokens
        self.ended += ended

    @property
    def texts(self) -> list[str]:
        return [token.text for token in self.tokens]

    @property
    def steps(self) -> list[int | None]:
        return [token.step_id for token in self.tokens]


A, B = Choice(1, " a"), Choice(2, " b")


def test_a_token_is_told_once_both_sides_know_of_it() -> None:
    told = Told()
    told.answer.add([A])
    assert told.tokens == []
    told.answer.chose(Chosen(7, 1.5), 1)
    assert (told.texts, told.steps) == ([" a"], [7])
    assert told.records == [TokenEmitted(request_id="r", index=0, step_id=7, time=1.5)]


def test_the_tap_may_be_first() -> None:
    told = Told()
    told.answer.chose(Chosen(7, 1.5), 1)
    told.answer.add([A])
    assert (told.texts, told.steps) == ([" a"], [7])


def test_two_tokens_of_one_step_have_one_time() -> None:
    told = Told()
    told.answer.chose(Chosen(7, 1.5), 2)
    told.answer.add([A, B])
    assert told.steps == [7, 7]
    assert [token.index for token in told.tokens] == [0, 1]


def test_the_end_waits_until_the_request_has_left_the_scheduler() -> None:
    told = Told()
    told.answer.add([A])
    told.answer.chose(Chosen(7, 1.5), 1)
    told.answer.end(FinishReason.LENGTH)
    assert told.ended == []
    told.answer.left()
    assert [end.reason for end in told.ended] == [FinishReason.LENGTH]


def test_the_end_waits_for_tokens_whose_step_is_not_known_yet() -> None:
    told = Told()
    told.answer.add([A])
    told.answer.end(FinishReason.LENGTH)
    told.answer.left()
    assert told.ended == []
    told.answer.chose(Chosen(7, 1.5), 1)
    assert told.texts == [" a"]
    assert len(told.ended) == 1


def test_what_was_computed_after_a_stop_string_is_not_told() -> None:
    told = Told()
    told.answer.chose(Chosen(7, 1.5), 1)
    told.answer.add([A])
    told.answer.end(FinishReason.STOP, text=" held back")
    told.answer.chose(Chosen(8, 1.6), 1)
    told.answer.left()
    assert told.steps == [7]
    assert told.ended == [Ended(request_id="r", reason=FinishReason.STOP, text=" held back")]


def test_a_blocking_call_tells_its_tokens_when_it_comes_back() -> None:
    told = Told()
    told.answer.chose(Chosen(7, 1.5), 1)
    told.answer.add([A, B], told_late=True)
    told.answer.chose(Chosen(8, 1.6), 1)
    times = [record.time for record in told.records if isinstance(record, TokenEmitted)]
    assert told.steps == [7, 8]
    assert times[0] == times[1] > 1.6


def test_what_vllm_refuses_never_reaches_the_scheduler() -> None:
    told = Told()
    told.answer.refuse("too long")
    assert told.ended == [Ended(request_id="r", reason=FinishReason.ERROR, refusal="too long")]


def test_what_is_taken_back_before_the_scheduler_heard_of_it_is_an_abort() -> None:
    told = Told()
    told.answer.withdraw()
    assert told.ended == [Ended(request_id="r", reason=FinishReason.ABORT)]


def test_without_a_tap_tokens_have_no_step_and_the_end_comes_at_once() -> None:
    told = Told(with_tap=False)
    told.answer.add([A, B])
    told.answer.end(FinishReason.LENGTH)
    assert told.steps == [None, None]
    assert len(told.ended) == 1


def test_a_tap_that_is_lost_holds_nothing_back() -> None:
    told = Told()
    told.answer.chose(Chosen(7, 1.5), 1)
    told.answer.add([A, B])
    told.answer.end(FinishReason.LENGTH)
    told.answer.go_on_without_tap()
    assert told.steps == [7, None]
    assert len(told.ended) == 1
