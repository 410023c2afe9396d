"""Watched, paused and batched, ``model.generate()`` chooses the tokens that it chooses alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from backends.base import SamplingParams
from backends.generate.messages import STATIC, WorkerConfig
from backends.generate.model_worker import ModelWorker, load_worker, take_message
from backends.records import FinishReason, StepRecord
from backends.worker_messages import AddRequest, Ended, WorkerUpdate
from tests.tiny_models import ARCHITECTURES, Architecture, prepare_tiny_model

STEPS = 24
PROMPTS = ("the batch runs", "a", "every request in it gets one token", "안녕")


class Bench:
    """A worker without a process, and the model it was made from."""

    def __init__(self, worker: ModelWorker, sent: list[WorkerUpdate]) -> None:
        self.worker = worker
        self.sent = sent
        self.plain: Any = AutoModelForCausalLM.from_pretrained(worker.config.model.path).eval()

    def serve(self, *prompts: str, static: bool = False, **sampling: Any) -> list[list[int]]:
        """Token ids of the answers, as the worker sent them."""
        self.sent.clear()
        params = SamplingParams(**{"max_tokens": STEPS, "temperature": 0, **sampling})
        for index, prompt in enumerate(prompts):
            ids = self.worker.codec.encode(prompt)
            request = AddRequest(
                request_id=str(index), prompt_ids=ids, sampling=params, mode=STATIC if static else None
            )
            take_message(request, self.worker)
        while self.worker.workload.has_waiting():
            self.worker.run_batch()
        tokens = [token for update in self.sent for token in update.tokens]
        return [
            [token.token_id for token in tokens if token.request_id == str(index)]
            for index in range(len(prompts))
        ]

    def generate_alone(self, prompt: str, **options: Any) -> list[int]:
        """What ``model.generate`` gives, without any of ours."""
        ids = torch.tensor([self.worker.codec.encode(prompt)])
        defaults = {"do_sample": False, "max_new_tokens": STEPS}
        output = self.plain.generate(ids, **{**defaults, **options})
        return output[0, ids.shape[1] :].tolist()


@pytest.fixture(scope="module", params=ARCHITECTURES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    architecture: Architecture = request.param
    model = prepare_tiny_model(tmp_path_factory.mktemp(architecture), architecture)
    config = WorkerConfig(model=model, device="cpu", max_model_len=128, batch_size=4, first_step_id=0)
    sent: list[WorkerUpdate] = []
    return Bench(load_worker(config, sent.append), sent)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_greedy_tokens_are_those_of_model_generate(prompt: str, bench: Bench) -> None:
    assert bench.serve(prompt) == [bench.generate_alone(prompt)]


def test_every_row_of_a_padded_static_batch_gets_the_tokens_it_would_get_alone(bench: Bench) -> None:
    assert bench.serve(*PROMPTS, static=True) == [bench.generate_alone(prompt) for prompt in PROMPTS]
    (first,) = bench.sent[0].records
    assert isinstance(first, StepRecord)
    assert first.input_shape is not None
    assert first.input_shape[0] == len(PROMPTS), "they did run as one batch"


@pytest.mark.parametrize("sampling", [{}, {"top_k": 5}, {"top_p": 0.8}, {"temperature": 2.0}], ids=str)
def test_sampled_tokens_are_those_of_model_generate_with_the_same_seed(
    sampling: dict[str, Any], bench: Bench
) -> None:
    options = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, **sampling}
    torch.manual_seed(11)
    expected = bench.generate_alone(PROMPTS[0], do_sample=True, **options)
    assert bench.serve(PROMPTS[0], seed=11, **options) == [expected]


def test_a_model_stops_at_its_end_token_as_model_generate_does(bench: Bench) -> None:
    """A tiny model never says its end token, so one of its words is made that."""
    expected = bench.generate_alone(PROMPTS[0])
    end = expected[5]
    bench.worker.eos_token_ids = frozenset({end})
    try:
        (answer,) = bench.serve(PROMPTS[0])
        (going_on,) = bench.serve(PROMPTS[0], ignore_eos=True)
    finally:
        bench.worker.eos_token_ids = frozenset(bench.worker.config.model.eos_token_ids)
    assert answer == expected[: expected.index(end)]
    assert going_on == expected


def test_the_text_sent_is_the_text_of_the_tokens(bench: Bench) -> None:
    (ids,) = bench.serve(PROMPTS[0])
    text = "".join(token.text for update in bench.sent for token in update.tokens)
    codec = bench.worker.codec
    whole = codec.decode([*codec.encode(PROMPTS[0]), *ids]).removeprefix(PROMPTS[0])
    assert text == whole.rstrip("\ufffd")
    assert bench.sent[-1].ended == [Ended(request_id="0", reason=FinishReason.LENGTH)]
