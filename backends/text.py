"""Text to tokens and back, without torch or transformers: counting, streaming, chat templates.

A token is not a character: ``👋`` is three tokens of SmolLM2, ``안`` up to three. Text leaves here
only when its last character is whole, and only when it cannot be the start of a stop string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from backends.errors import InvalidRequest
from backends.models.describe import PreparedModel, read_json

REPLACEMENT = "\ufffd"
"""What a decoder gives for bytes that are no whole character."""


class TextCodec:
    """A model's tokenizer and chat template. Thread-safe: nothing in it changes."""

    def __init__(
        self, tokenizer: Tokenizer, chat_template: str | None, special_tokens: Mapping[str, str]
    ) -> None:
        self._tokenizer = tokenizer
        self._special_tokens = special_tokens
        self._template = None if chat_template is None else _compile(chat_template)
        self._bos = special_tokens.get("bos_token", "")

    @classmethod
    def load(cls, model: PreparedModel) -> TextCodec:
        """From the files of a prepared model."""
        folder = Path(model.path)
        template = folder / "chat_template.jinja"
        return cls(
            Tokenizer.from_file(model.tokenizer_file),
            template.read_text(encoding="utf-8") if template.is_file() else None,
            _special_tokens(read_json(folder / "tokenizer_config.json")),
        )

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str) -> list[int]:
        """Token ids, with the special tokens that ``tokenizer(text)`` of transformers adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def count_tokens(self, text: str) -> int:
        """Tokens of a prompt, special tokens included."""
        return len(self.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without special tokens."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def token_text(self, token_id: int) -> str:
        """What a token looks like by itself, special ones by their name.

        Decoded twice over, since some tokenizers drop the space before the first word.
        """
        once: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        twice: str = self._tokenizer.decode([token_id, token_id], skip_special_tokens=False)
        return twice[len(once) :]

    def detokenizer(self, prompt_ids: Sequence[int] = ()) -> Detokenizer:
        """For the tokens that follow a prompt."""
        return Detokenizer(self, prompt_ids)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Messages → prompt text that asks for the assistant's next one.

        By the model's own template; where it has none, by ``plain_chat``. A start token that the
        tokenizer will add by itself is left out, so that the prompt has it once. Raises
        ``InvalidRequest`` when the template refuses the messages.
        """
        _check_messages(messages)
        if self._template is None:
            return plain_chat(messages)
        try:
            text = self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except jinja2.TemplateError as error:
            raise InvalidRequest(f"The model's chat template refused: {error}", field="messages") from error
        except (TypeError, ValueError, KeyError) as error:
            raise InvalidRequest(f"The model's chat template failed: {error}", field="messages") from error
        return text.removeprefix(self._bos) if self._adds_bos() else text

    def _adds_bos(self) -> bool:
        return bool(self._bos) and self._tokenizer.encode("").tokens[:1] == [self._bos]


class Detokenizer:
    """Token ids in, whole characters out.

    Decoding one id alone is wrong twice over: it may be half a character, and some tokenizers drop
    the space before the first word. So a window of ids is decoded with and without the new ones::

        ids      … the  cat  ▁sat  <e2> <80> <a6>
                  └before┘
                  └─────── with the new ──────┘     text = what the second adds to the first
    """

    WINDOW = 8
    """Prompt ids that the first token is decoded with: enough for its leading space."""

    def __init__(self, codec: TextCodec, prompt_ids: Sequence[int]) -> None:
        self._codec = codec
        self._ids = list(prompt_ids[-self.WINDOW :])
        self._start = 0
        self._end = len(self._ids)

    def push(self, token_id: int) -> str:
        """The text that is whole now; empty while a character is not."""
        self._ids.append(token_id)
        before, after = self._decode_window()
        if after.endswith(REPLACEMENT) or len(after) <= len(before):
            return ""
        self._start, self._end = self._end, len(self._ids)
        return after[len(before) :]

    def finish(self) -> str:
        """What was held back and will not become whole: characters, but never half of one."""
        before, after = self._decode_window()
        self._start = self._end = len(self._ids)
        return after[len(before) :].rstrip(REPLACEMENT)

    def _decode_window(self) -> tuple[str, str]:
        return self._codec.decode(self._ids[self._start : self._end]), self._codec.decode(
            self._ids[self._start :]
        )


class StopMatcher:
    """Finds stop strings in streamed text, across the borders of its pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.met = False
        """A stop string has come: nothing more follows."""

    def push(self, text: str) -> str:
        """The text that may be shown now: none of it belongs to a stop string or could begin one."""
        if self.met:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.met = True
            return self._release(min(found))
        return self._release(len(self._held) - self._length_of_possible_start())

    def finish(self) -> str:
        """The text is over: what was held back was no stop string after all."""
        return "" if self.met else self._release(len(self._held))

    def _release(self, length: int) -> str:
        released, self._held = self._held[:length], self._held[length:]
        return released

    def _length_of_possible_start(self) -> int:
        """Length of the longest end of the held text that a stop string begins with."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


class OutputText:
    """The text of one answer as it grows: a ``Detokenizer``, then a ``StopMatcher``."""

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops)

    @property
    def stopped(self) -> bool:
        """A stop string has been met."""
        return self._matcher.met

    def push(self, token_id: int) -> str:
        """What this token adds to the text that may be shown."""
        return self._matcher.push(self._detokenizer.push(token_id))

    def finish(self) -> str:
        """The rest, once no token follows."""
        return self._matcher.push(self._detokenizer.finish()) + self._matcher.finish()


def plain_chat(messages: Sequence[Mapping[str, str]]) -> str:
    """For a model without a template: a system message as it is, then ``User:`` and ``Assistant:``
    lines, ending in an open ``Assistant:``."""
    lines = [
        message["content"]
        if message["role"] == "system"
        else f"{message['role'].title()}: {message['content']}"
        for message in messages
    ]
    return "\n".join([*lines, "Assistant:"])


def _check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    if not messages:
        raise InvalidRequest("There are no messages.", field="messages")
    for index, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise InvalidRequest(
                    f"Message {index} needs a {key}, as text; got {message.get(key)!r}.", field="messages"
                )


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token``, ``eos_token`` … as text: templates use them."""
    tokens = {name: value for name, value in config.items() if name.endswith("_token")}
    named = {name: value["content"] if isinstance(value, dict) else value for name, value in tokens.items()}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def _compile(template: str) -> jinja2.Template:
    """As transformers compiles it, so that both render the same text."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment.from_string(template)


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}`` marks what an assistant said, for training; here it only renders."""

    tags = {"generation"}  # noqa: RUF012 (as in the base class)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape HTML characters."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
