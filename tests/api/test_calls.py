"""Every call of the API tab, run as a reader would: copied into a shell, or into Python."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.api.serving import serving
from tests.fakes import FakeBackend

ROOT = Path(__file__).resolve().parents[2]
UNENDING = {"telemetry"}
"""Calls whose curl goes on until it is stopped."""


def calls(address: str) -> list[dict[str, str]]:
    """As the page makes them."""
    code = f"""
        import {{ callsOf }} from {json.dumps(str(ROOT / "assets/js/api/calls.js"))};
        console.log(JSON.stringify(callsOf({{ address: {json.dumps(address)}, backend: 'naive' }})));
    """
    made = subprocess.run(
        ["node", "--input-type=module", "-e", code], capture_output=True, text=True, check=True
    )
    found: list[dict[str, str]] = json.loads(made.stdout)
    return found


async def run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


NAMES = [call["name"] for call in calls("http://127.0.0.1:1")]


def engines() -> list[FakeBackend]:
    """The second takes several prompts, and answers the first."""
    vllm = FakeBackend("vllm", modes=("blocking", "async"), supported=frozenset({"top_p"}))
    vllm.info = msgspec.structs.replace(vllm.info, takes_many_prompts=True)
    return [FakeBackend("naive"), vllm]


@pytest.mark.parametrize("name", NAMES)
async def test_a_copied_call_works_in_a_shell_and_in_python(name: str, tmp_path: Path) -> None:
    async with serving(*engines()) as served:
        await served.naive.start()
        [call] = [call for call in calls(f"http://{served.address}") if call["name"] == name]
        if name not in UNENDING:
            code, output = await run("bash", "-c", call["curl"].replace("curl ", "curl -sS --fail ", 1))
            assert code == 0, output
            assert output.strip()
        for language in ("python", "openai"):
            if language not in call:
                continue
            script = tmp_path / f"with_{language}.py"
            script.write_text(call[language], encoding="utf-8")
            code, output = await run(sys.executable, "-W", "error", str(script))
            assert code == 0, output
            assert output.strip()
            assert '"error"' not in output


async def test_the_curl_of_the_feed_is_answered_with_the_first_records() -> None:
    async with serving() as served:
        await served.naive.start()
        [call] = [call for call in calls(f"http://{served.address}") if call["name"] == "telemetry"]
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", "exec " + call["curl"] + " -sS", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        first = await process.stdout.read(200)
        process.terminate()
        await process.wait()
    assert b'"type"' in first
