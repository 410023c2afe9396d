"""The backend of docs/adding-a-backend.md is served like any other."""

from __future__ import annotations

from openai import AsyncOpenAI

from backends.base import Backend
from backends.records import FinishReason, RequestFinished
from backends.settings import Settings
from tests.api.serving import serving
from tests.example_backend import MirrorBackend


async def test_the_example_answers_over_every_route_and_is_on_the_record() -> None:
    backend: Backend = MirrorBackend(Settings())
    async with serving(backend) as served, served.client() as client:
        taught = await client.post("/generate", json={"prompt": "one two three"})
        assert taught.json()["generated_text"] == "three two one "

        openai = AsyncOpenAI(base_url=f"http://{served.address}/v1", api_key="none", http_client=client)
        answer = await openai.completions.create(model="mirror", prompt="a b c", max_tokens=2, temperature=0)
        assert answer.choices[0].text == "c b "
        streamed = await openai.chat.completions.create(
            model="mirror", messages=[{"role": "user", "content": "a b"}], stream=True
        )
        assert [c.choices[0].delta.content async for c in streamed if c.choices[0].delta.content] == [
            "b ",
            "a ",
        ]

        async with client.stream("POST", "/generate_stream", json={"prompt": "gone away"}) as gone:
            await anext(gone.aiter_lines())
    ends = [r.reason for e in backend.recorder.since(0) if isinstance(r := e.record, RequestFinished)]
    assert ends[:3] == [FinishReason.STOP] * 3
