"""Requests in, tokens out: ``AsyncLLM`` put to work, in the vLLM worker's event loop.

It passes requests to vLLM and tokens back, and joins what vLLM says of a text with what the tap says
of the steps (``answers.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from vllm import RequestOutput
from vllm.exceptions import VLLMClientError
from vllm.inputs import TokensPrompt
from vllm.renderers.inputs.preprocess import parse_model_prompt
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from backends.base import sample_id
from backends.records import AnyRecord, EngineGauges, StepRecord
from backends.vllm_async.answers import Answer, Chosen
from backends.vllm_async.messages import (
    BLOCKING,
    AddCall,
    Prompt,
    TapLost,
    TapReport,
    ToVllm,
    VllmUpdate,
)
from backends.vllm_async.outbox import Outbox
from backends.vllm_async.outputs import choices, finish_reason
from backends.vllm_async.sampling import vllm_sampling
from backends.vllm_async.sync_mode import BlockingLLM
from backends.vllm_async.tap_link import TapLink
from backends.worker_messages import AbortRequest, Ended, SetGate, StepOnce, Token

LOOK_INTERVAL = 0.1
"""Seconds between two looks at whether EngineCore lives."""


class Frontend:
    """Lives on one event loop. What goes wrong in any of its tasks ends all of them."""

    def __init__(self, engine: AsyncLLM, tap: TapLink | None, send: Callable[[VllmUpdate], None]) -> None:
        self._engine = engine
        self._tap = tap
        self._send_update = send
        self._answers: dict[str, Answer] = {}
        self._calls: dict[str, Future[list[RequestOutput]]] = {}
        """Text → the blocking call that it is part of."""
        self._outbox = Outbox()
        self._num_waiting: int | None = 0 if tap else None
        self._blocking = BlockingLLM(self._generate, asyncio.get_running_loop())
        self._caller = ThreadPoolExecutor(1, "blocking calls")
        """One thread, so that calls wait in order and can be taken back until they begin."""
        self._tasks = asyncio.TaskGroup()

    async def run(self, inbox: asyncio.Queue[ToVllm], gauges: asyncio.Queue[EngineGauges]) -> None:
        """Until EngineCore dies. Raises what went wrong, in an ``ExceptionGroup``."""
        async with self._tasks as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._hear_gauges(gauges))
            if self._tap is not None:
                tasks.create_task(self._hear_tap(self._tap))
            while True:
                await self._take(await inbox.get())

    async def _watch(self) -> None:
        while not self._engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(LOOK_INTERVAL)
        raise EngineDeadError

    # From the server

    async def _take(self, message: ToVllm) -> None:
        match message:
            case AddCall(mode=mode, prompts=prompts):
                self._add(prompts, is_blocking=mode == BLOCKING)
            case AbortRequest(request_id):
                await self._abort(request_id)
            case SetGate() | StepOnce():
                if self._tap is not None:
                    await self._tap.send(message)

    def _add(self, prompts: Sequence[Prompt], *, is_blocking: bool) -> None:
        for prompt in prompts:
            self._answers[prompt.request_id] = Answer(
                prompt.request_id, prompt.sampling, self._send, with_tap=self._tap is not None
            )
        if is_blocking:
            self._tasks.create_task(self._call(prompts))
        else:
            for prompt in prompts:
                self._tasks.create_task(self._stream(prompt))

    async def _abort(self, request_id: str) -> None:
        """A request, with all its texts. One that has not reached the scheduler yet is taken back
        there once it has, so that it cannot slip past."""
        prefix = sample_id(request_id, 1)[:-1]
        ids = [name for name in self._answers if name == request_id or name.startswith(prefix)]
        for name in ids:
            answer, call = self._answers[name], self._calls.get(name)
            if call is not None and call.cancel():  # it had not begun
                continue
            if answer.is_seen:
                await self._engine.abort(name)
            else:
                answer.is_unwanted = True

    # Texts

    async def _generate(self, prompt: Prompt, kind: RequestOutputKind) -> AsyncGenerator[RequestOutput, None]:
        tokens = TokensPrompt(prompt_token_ids=prompt.prompt_ids)
        if prompt.cache_salt is not None:
            tokens["cache_salt"] = prompt.cache_salt
        parsed = parse_model_prompt(self._engine.model_config, tokens)
        (rendered,) = await self._engine.renderer.render_cmpl_async([parsed])
        sampling = vllm_sampling(prompt, kind, self._tap.num_told if self._tap else 0)
        generating = self._engine.generate(rendered, sampling, prompt.request_id)
        async with contextlib.aclosing(generating) as outputs:
            async for output in outputs:
                yield output

    async def _stream(self, prompt: Prompt) -> None:
        """Asynchronous mode: tokens as they come."""
        answer = self._answers[prompt.request_id]
        try:
            async for output in self._generate(prompt, RequestOutputKind.DELTA):
                _tell(answer, output)
        except VLLMClientError as error:
            answer.refuse(str(error))

    async def _call(self, prompts: Sequence[Prompt]) -> None:
        """Blocking mode: all texts when the last is done."""
        answers = [self._answers[prompt.request_id] for prompt in prompts]
        call = self._caller.submit(self._blocking.generate, prompts)
        self._calls |= {answer.request_id: call for answer in answers}
        self._send()  # the queue of calls is longer by one
        try:
            outputs = await asyncio.wrap_future(call)
        except VLLMClientError as error:
            for answer in answers:
                answer.refuse(str(error))
        except asyncio.CancelledError:
            if not call.cancelled():  # this process is ending
                raise
            for answer in answers:
                answer.withdraw()
        else:
            for answer, output in zip(answers, outputs, strict=True):
                _tell(answer, output, told_late=True)

    # From the tap, or the stat logger where there is none

    async def _hear_tap(self, tap: TapLink) -> None:
        while True:
            match await tap.receive():
                case TapReport() as report:
                    await self._take_report(report)
                case TapLost(sentence):
                    return self._lose_tap(sentence)

    async def _take_report(self, report: TapReport) -> None:
        self._num_waiting = report.num_waiting
        self._send(report.records)
        for step in report.records:
            if isinstance(step, StepRecord):
                chosen = Chosen(step.step_id, step.start_time + step.duration)
                for answer in self._known(report.tokens):
                    answer.chose(chosen, report.tokens[answer.request_id])
        for answer in self._known(report.seen):
            answer.is_seen = True
            if answer.is_unwanted:
                await self._engine.abort(answer.request_id)
        for answer in self._known(report.gone):
            answer.left()

    def _lose_tap(self, sentence: str) -> None:
        self._tap, self._num_waiting = None, None
        self._flush()
        self._send_update(VllmUpdate(num_waiting=None, tap_lost=sentence))
        for answer in list(self._answers.values()):
            answer.go_on_without_tap()

    async def _hear_gauges(self, gauges: asyncio.Queue[EngineGauges]) -> None:
        while True:
            last = await gauges.get()
            self._num_waiting = last.num_waiting
            self._send([last])

    def _known(self, request_ids: Iterable[str]) -> list[Answer]:
        return [self._answers[name] for name in request_ids if name in self._answers]

    # To the server

    def _send(
        self, records: Sequence[AnyRecord] = (), tokens: Sequence[Token] = (), ended: Sequence[Ended] = ()
    ) -> None:
        """One message for all that happens in one turn of the event loop: the requests of a batch get
        their tokens at the same moment."""
        for end in ended:
            del self._answers[end.request_id]
            self._calls.pop(end.request_id, None)
        if self._outbox.is_empty:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.add(records, tokens, ended)

    def _flush(self) -> None:
        update = self._outbox.take(self._num_waiting, {"blocking_calls": self._num_waiting_calls})
        if update is not None:
            self._send_update(update)

    @property
    def _num_waiting_calls(self) -> int:
        return sum(not (call.running() or call.done()) for call in set(self._calls.values()))


def _tell(answer: Answer, output: RequestOutput, *, told_late: bool = False) -> None:
    (completion,) = output.outputs
    tokens = choices(completion, answer.sampling.logprobs)
    answer.add(tokens, told_late=told_late)
    if output.finished:
        answer.end(finish_reason(completion), "" if tokens else completion.text)
