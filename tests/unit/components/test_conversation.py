from __future__ import annotations

import pytest
from gradio.components.chatbot import ChatbotDataMessages

from components.conversation import (
    Notice,
    is_notice,
    log_from_browser,
    messages_for_model,
    model_says,
    notice,
    text_of,
    up_to_last_question,
    user_says,
)


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "a < b && c",
        "&lt;already&gt;",
        "{{1+1}} ${1}",
        "  indented\n\n",
        "é한",
        "",
    ],
)
def test_what_was_written_is_read_back_letter_by_letter(text: str) -> None:
    assert text_of(user_says(text)) == text
    assert text_of(model_says(text)) == text


def test_a_message_carries_nothing_that_the_log_could_parse_as_html() -> None:
    message = user_says("<script>alert('x')</script> &amp;")
    assert not set("<>\"'") & set(message["content"][0]["text"])


def test_the_title_of_a_notice_is_escaped_too() -> None:
    assert "<b>" not in notice(Notice.ERROR, "<b>")["metadata"]["title"]


def test_the_model_is_given_the_turns_in_order() -> None:
    log = [user_says("one"), model_says("two"), user_says("three")]
    assert messages_for_model(log) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]


def test_a_system_prompt_comes_first_and_a_blank_one_not_at_all() -> None:
    log = [user_says("one")]
    assert messages_for_model(log, "be brief")[0] == {"role": "system", "content": "be brief"}
    assert messages_for_model(log, "  \n")[0]["role"] == "user"


def test_the_model_never_sees_a_notice_nor_the_question_that_it_answered_instead() -> None:
    log = [
        user_says("far too long"),
        notice(Notice.ERROR, "No answer", "too long"),
        user_says("shorter"),
    ]
    assert messages_for_model(log) == [{"role": "user", "content": "shorter"}]


def test_the_part_of_an_answer_that_came_before_an_error_counts() -> None:
    log = [
        user_says("one"),
        model_says("half an ans"),
        notice(Notice.ERROR, "The answer broke off", "died"),
        user_says("go on"),
    ]
    assert [message["content"] for message in messages_for_model(log)] == ["one", "half an ans", "go on"]


def test_a_notice_is_told_from_a_message_also_as_it_comes_back_from_the_browser() -> None:
    from_browser = {"role": "assistant", "content": [], "metadata": None, "options": None}
    assert not is_notice(from_browser)
    assert is_notice({**from_browser, "metadata": {"title": "x", "id": None}})


def test_of_what_a_browser_sends_only_text_counts() -> None:
    payload = ChatbotDataMessages(
        root=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a &lt; b"},
                    {
                        "type": "component",
                        "component": "image",
                        "value": "x",
                        "constructor_args": {},
                        "props": {},
                    },
                    {"type": "file", "file": {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}},
                ],
            }
        ]
    )
    (message,) = log_from_browser(payload)
    assert text_of(message) == "a < b"
    assert log_from_browser(None) == []


def test_trying_again_goes_back_to_the_last_question() -> None:
    log = [user_says("one"), model_says("two"), user_says("three"), notice(Notice.ERROR, "x")]
    assert up_to_last_question(log) == log[:3]
    assert up_to_last_question([model_says("no question")]) == []
