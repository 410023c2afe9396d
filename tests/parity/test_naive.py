"""The naive worker, step by step, chooses the tokens that ``model.generate`` chooses.

Two texts can differ for one honest reason: the naive worker turns its text into tokens anew at
every step, and the text of two tokens can come back as one. Then the model sees another input.
The records tell: the row's length does not grow by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from backends.naive.messages import ForwardBatch, SequenceInput, StepResult
from backends.naive.model_worker import ModelWorker
from tests.parity.conftest import WorkerOf
from tests.tiny_models import ARCHITECTURES, Architecture

STEPS = 24


@dataclass
class Run:
    """What one sequence went through."""

    text: str
    pending_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def first_jump(self) -> int:
        """The first step whose input did not grow by exactly one token; the number of steps if none."""
        grown = [self.lengths[0] + index for index in range(len(self.lengths))]
        return next(
            (i for i, (a, b) in enumerate(zip(grown, self.lengths, strict=True)) if a != b), len(grown)
        )


def run_greedy(
    worker: ModelWorker, prompts: list[str], steps: int = STEPS
) -> tuple[list[Run], list[StepResult]]:
    runs = [Run(prompt) for prompt in prompts]
    results = []
    for step in range(steps):
        rows = [
            SequenceInput(sequence_id=str(i), text=run.text, pending_ids=run.pending_ids, temperature=0)
            for i, run in enumerate(runs)
        ]
        result = worker.generate_forward_batch(ForwardBatch(step, rows))
        for run, row in zip(runs, result.rows, strict=True):
            run.text, run.pending_ids = row.text, row.pending_ids
            run.token_ids.append(row.token_id)
            run.lengths.append(row.num_tokens)
        results.append(result)
    return runs, results


def generate_greedy(worker: ModelWorker, prompt: str, steps: int = STEPS) -> list[int]:
    ids = torch.tensor([worker.tokenizer(prompt)["input_ids"]])
    output = worker.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, do_sample=False, eos_token_id=None
    )
    return output[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_one_prompt_gives_the_tokens_of_generate(worker_of: WorkerOf, architecture: Architecture) -> None:
    worker = worker_of(architecture, "words")
    (run,), _ = run_greedy(worker, [" a b c d"])
    assert run.first_jump == STEPS
    assert run.token_ids == generate_greedy(worker, " a b c d")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_prompts_padded_into_one_batch_give_the_tokens_they_give_alone(
    worker_of: WorkerOf, architecture: Architecture
) -> None:
    worker = worker_of(architecture, "words")
    prompts = [" a", " a b c d e f g h", " d c b"]
    runs, results = run_greedy(worker, prompts)
    assert results[0].input_shape == [3, 8]
    assert [run.token_ids for run in runs] == [generate_greedy(worker, prompt) for prompt in prompts]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_agree_until_tokenizing_anew_changes_the_input_and_the_record_says_when(
    worker_of: WorkerOf, architecture: Architecture
) -> None:
    worker = worker_of(architecture, "bytes")
    (run,), _ = run_greedy(worker, ["the batch runs"])
    assert run.first_jump > 0
    assert run.token_ids[: run.first_jump] == generate_greedy(worker, "the batch runs")[: run.first_jump]


def test_some_text_does_come_back_as_fewer_tokens(worker_of: WorkerOf) -> None:
    jumps = [
        run_greedy(worker_of(architecture, "bytes"), ["the batch runs"])[0][0].first_jump
        for architecture in ARCHITECTURES
    ]
    assert min(jumps) < STEPS, "no run shows the case that the test above allows for"


def test_half_a_character_rides_along_until_it_is_whole(worker_of: WorkerOf) -> None:
    worker = worker_of("llama", "bytes")
    whole = worker.tokenizer("é", add_special_tokens=False)["input_ids"]
    assert len(whole) == 2
    row = SequenceInput(sequence_id="A", text="the batch", pending_ids=[], temperature=0)
    half = worker._row_result(row, worker.tokenizer("the batch")["input_ids"], whole[0])
    assert (half.new_text, half.text, half.pending_ids) == ("", "the batch", [whole[0]])
    row = SequenceInput(sequence_id="A", text=half.text, pending_ids=half.pending_ids, temperature=0)
    (ids,) = worker.tokenize([row]).input_ids.tolist()
    assert ids[-1] == whole[0]
    complete = worker._row_result(row, ids, whole[1])
    assert (complete.new_text, complete.text, complete.pending_ids) == ("é", "the batché", [])


def test_two_prompts_of_four_tokens_grow_from_2_4_to_2_25(worker_of: WorkerOf) -> None:
    runs, results = run_greedy(worker_of("opt", "words"), [" a b c d", " f g h i"], steps=22)
    assert [result.input_shape for result in results] == [[2, length] for length in range(4, 26)]
    lengths = runs[0].lengths
    assert (sum(length**2 for length in lengths), sum(lengths)) == (5_511, 319)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_last_position_is_a_real_token_whatever_the_padding(
    worker_of: WorkerOf, architecture: Architecture
) -> None:
    rows = [
        SequenceInput(sequence_id=str(i), text=text, pending_ids=[], temperature=0)
        for i, text in enumerate([" a b c", " a"])
    ]
    batch = worker_of(architecture, "words").tokenize(rows)
    assert batch.attention_mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert batch.position_ids.tolist() == [[0, 1, 2], [0, 0, 0]]
