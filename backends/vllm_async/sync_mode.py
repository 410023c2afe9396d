"""vLLM as a script calls it: one blocking call with all prompts, and the texts when all are done.

The article this project grew from ends here, with some twenty lines in place of a hand-written
server::

    llm = LLM(model="facebook/opt-125m", gpu_memory_utilization=0.50, max_model_len=512, …)
    sampling_params = SamplingParams(temperature=0.7, top_p=0.95)

    @app.post("/generate_vllm")
    def generate_vllm(body):
        outputs = llm.generate(body.prompts, sampling_params)
        return {"generated_texts": [output.outputs[0].text for output in outputs]}

A web server runs such a function in a thread for each request, and two threads inside the
synchronous ``LLM.generate`` crash the process. So there must be a lock, and then calls queue up, one
after the other: an engine that batches, called so that it cannot. ``BlockingLLM`` is that call, on
the engine that serves the asynchronous one as well, so that one can be seen beside the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence

from vllm import RequestOutput
from vllm.sampling_params import RequestOutputKind

from backends.vllm_async.messages import Prompt

Generate = Callable[[Prompt, RequestOutputKind], AsyncGenerator[RequestOutput, None]]
"""What ``AsyncLLM.generate`` yields for a prompt."""


class BlockingLLM:
    """One call at a time, however many threads come."""

    def __init__(self, generate: Generate, loop: asyncio.AbstractEventLoop) -> None:
        self._generate = generate
        self._loop = loop
        self._lock = threading.Lock()

    def generate(self, prompts: Sequence[Prompt]) -> list[RequestOutput]:
        """All texts, when the last is done. Blocks, first until no other call runs; never call it on
        the event loop. The prompts of one call share the batch."""
        with self._lock:
            return asyncio.run_coroutine_threadsafe(self._all(prompts), self._loop).result()

    async def _all(self, prompts: Sequence[Prompt]) -> list[RequestOutput]:
        outputs = (self._generate(prompt, RequestOutputKind.FINAL_ONLY) for prompt in prompts)
        return await asyncio.gather(*map(self._last, outputs))

    @staticmethod
    async def _last(outputs: AsyncGenerator[RequestOutput, None]) -> RequestOutput:
        last = None
        async for output in outputs:
            last = output
        assert last is not None, "vLLM ends every request with an output"
        return last
