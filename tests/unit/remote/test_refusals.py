"""What a server's refusal becomes."""

from __future__ import annotations

import msgspec
import pytest

from backends.errors import InvalidRequest, Overloaded, ServescopeError, UpstreamError
from backends.remote.refusals import (
    LONGEST_RETRY_AFTER,
    LONGEST_WORDS,
    Page,
    Said,
    TryAgain,
    error_of,
    is_about_stream_options,
    said_in,
)


def page(
    status: int, body: object = None, *, after: float | None = None, kind: str = "application/json"
) -> Page:
    data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    return Page(status, kind, data, after)


def final(refused: Page) -> ServescopeError:
    error = error_of(refused, "Server 2")
    assert isinstance(error, ServescopeError), "another try was not to be made"
    return error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "No.", "param": "n", "code": 400}}, Said("No.", "n")),
        ({"error": {"message": "No.", "param": "body.seed"}}, Said("No.", "seed")),
        ({"error": "Unauthorized"}, Said("Unauthorized")),
        ({"object": "error", "message": "No.", "param": "top_k"}, Said("No.", "top_k")),
        ({"detail": [{"loc": ["body", "seed"], "msg": "no number"}]}, Said("no number", "seed")),
        ({"detail": "Not Found"}, Said("Not Found")),
        ({"error": {"message": 5}}, Said()),
        ({"error": {"message": "No.", "param": "x" * 1000}}, Said("No.")),
        ({"detail": []}, Said()),
        ([], Said()),
        (b"no healthy upstream", Said()),
        (b"", Said()),
        (b"[" * 100_000, Said()),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_the_words_are_found_in_every_shape(body: object, said: Said) -> None:
    assert said_in(page(400, body).body) == said


def test_a_line_of_text_is_taken_and_a_page_for_browsers_is_not() -> None:
    assert said_in(b"no healthy\nupstream", "text/plain; charset=utf-8") == Said("no healthy upstream")
    assert said_in(b"<h1>Bad gateway</h1>", "text/html") == Said()


def test_words_are_one_line_that_can_be_shown() -> None:
    words = said_in(msgspec.json.encode({"message": "a\x00\x1b[31m\u2028b " + "x" * 10_000})).words
    assert words is not None
    assert words.startswith("a [31m b xxx")
    assert len(words) == LONGEST_WORDS + 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (422, InvalidRequest),
        (413, InvalidRequest),
        (404, UpstreamError),
        (500, UpstreamError),
    ],
)
def test_who_is_at_fault_shows_in_the_kind_of_error(status: int, kind: type[ServescopeError]) -> None:
    error = final(page(status, {"error": {"message": "Because.", "param": "seed"}}))
    assert type(error) is kind
    assert error.message.startswith("Server 2")
    assert "Because." in error.message
    assert error.field == ("seed" if kind is InvalidRequest else None)


@pytest.mark.parametrize("status", [401, 403])
def test_the_words_about_a_wrong_key_are_kept_back(status: int) -> None:
    error = final(page(status, {"error": {"message": "Incorrect API key provided: sk-12345"}}))
    assert error.message == f"Server 2 refuses the key of this page ({status})."


def test_a_redirect_is_not_followed() -> None:
    assert "redirects (307)" in final(page(307)).message


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    problem = error_of(page(status, after=0.5), "Server 2")
    assert isinstance(problem, TryAgain)
    assert problem.after == 0.5
    assert isinstance(problem.error, Overloaded if status == 429 else UpstreamError)


def test_a_server_that_asks_for_a_long_pause_is_not_waited_for() -> None:
    error = final(page(429, after=LONGEST_RETRY_AFTER + 1))
    assert isinstance(error, Overloaded)
    assert error.retry_after == LONGEST_RETRY_AFTER + 1


def test_a_refusal_without_a_word_is_told_by_its_status() -> None:
    assert "answered 500, without a reason" in final(page(500)).message


def test_servers_that_do_not_know_stream_options_are_recognised() -> None:
    unknown = {"error": {"message": "Unknown parameter: 'stream_options.continuous_usage_stats'."}}
    assert is_about_stream_options(page(400, unknown))
    assert is_about_stream_options(
        page(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "extra"}]})
    )
    assert not is_about_stream_options(page(400, {"error": {"message": "seed is too large"}}))
    assert not is_about_stream_options(page(500, unknown))
