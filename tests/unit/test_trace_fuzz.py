"""Whatever lies in a file, it is read or refused with a line number: nothing else is raised, nothing hangs,
and what was read can be told as JSON.

    FUZZ_EXAMPLES=10000 python -m pytest tests/unit/test_trace_fuzz.py     by hand: more, and others each time
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from backends.shelf import SHIPPED
from backends.trace import TooLarge, TraceError, check_size, file_lines, survey_trace
from tests.fuzzing import fuzzing

FUZZING = fuzzing(300)
MOST_BYTES = 300_000
"""Of a trace: less than the bombs become."""
NUM_LINES = 60

REAL = [
    b"".join(
        gzip.decompress((SHIPPED / f"{name}.jsonl.gz").read_bytes()).splitlines(keepends=True)[:NUM_LINES]
    )
    for name in ("naive-no-cache", "paged-preemption", "vllm-preemption")
]
PIECES = (
    *(
        b"1e999",
        b"-1",
        b"1e308",
        b"9" * 400,
        b"NaN",
        b"-0.0",
        b"null",
        b"true",
        b'""',
        b'"\\ud800"',
        b'"\\u0000"',
    ),
    *(
        b"{",
        b"}",
        b"[" * 2000,
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b'{"type":"snapshot"}\n',
        b" " * 5000,
    ),
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A real trace in which pieces are put in, numbers and strings replaced, bytes lost, lines doubled."""
    content = draw(st.sampled_from(REAL))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        match draw(st.integers(0, 4)):
            case 0:
                content = content[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=8)) + content[at:]
            case 1:
                content = content[:at] + content[at + draw(st.integers(1, 200)) :]
            case 2:
                content = content[:at]
            case 3:  # the value that comes next
                value = re.compile(rb'[0-9.]+|"[^"]*"').search(content, at)
                if value is not None:
                    content = (
                        content[: value.start()] + draw(st.sampled_from(PIECES)) + content[value.end() :]
                    )
            case 4:
                content = content[at:] + content[:at]
    return content


JSON_LINES = st.lists(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["type", "time", "header", "rows"]), inner)
        ),
        max_leaves=9,
    ).map(lambda value: json.dumps(value).encode())
).map(b"\n".join)
BOMBS = st.integers(0, 3).map(lambda n: REAL[0] * n + b" " * 10 ** (4 + n))
CONTENTS = spoiled() | spoiled() | JSON_LINES | st.binary() | BOMBS


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Such a content as it is, or compressed and then spoiled once more."""
    content = draw(CONTENTS)
    if draw(st.booleans()):
        return content
    packed = gzip.compress(content, compresslevel=1)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(packed)))
        packed = packed[:at] + draw(st.binary(max_size=3)) + packed[at + draw(st.integers(0, 3)) :]
    return packed * draw(st.integers(1, 2))


def test_whatever_lies_in_a_file_is_read_or_refused_with_its_line() -> None:
    num_read = 0
    refusals: list[TraceError] = []

    @FUZZING
    @given(content=files())
    def read(content: bytes) -> None:
        nonlocal num_read
        path.write_bytes(content)
        try:
            check_size(path, MOST_BYTES)
            survey = survey_trace(file_lines(path), max_bytes=MOST_BYTES)
        except TraceError as error:
            refusals.append(error)
        except TooLarge:
            return
        else:
            num_read += 1
            json.dumps(msgspec.to_builtins(survey), allow_nan=False, ensure_ascii=False).encode()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        read()
    assert num_read > 0
    assert refusals
    assert all(re.match(rf"line {refused.line}: .", refused.message) for refused in refusals)
    print(f"{num_read:,} read, {len(refusals):,} refused with their line")
