"""Which engines are measured. Each runs in a process of its own, and imports what it needs as it starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

from backends.models import PreparedModel, prepare_model
from backends.settings import Settings
from benchmarks.asking import num_tokens_of
from benchmarks.engine import MAX_MODEL_LEN, Engine
from benchmarks.llama import Llama


class Paged(Engine):
    """Ours, as the server runs it: its process, its pipe, its records and all."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        from backends.paged.engine import PagedEngine

        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.loop = asyncio.new_event_loop()
        settings = self.settings | {"device": device}
        self.engine = PagedEngine(Settings(max_model_len=MAX_MODEL_LEN, max_num_seqs=64, **settings))
        self.loop.run_until_complete(self.engine.start())

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        return self.loop.run_until_complete(self._answer(prompts, output_tokens))

    async def _answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        return await asyncio.gather(
            *(num_tokens_of(self.engine, output_tokens, prompt="", prompt_ids=tuple(ids)) for ids in prompts)
        )

    def stop(self) -> None:
        self.loop.run_until_complete(self.engine.stop())


class WrongBuild(Exception):
    """What is installed computes on another device than the one to be measured."""


class Vllm(Engine):
    """vLLM's own ``LLM``: no server, no tap, prefix caching as it comes. On a CPU all cores, eager, blocks of
    32; on a GPU compiled and with CUDA graphs, as it comes."""

    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        if device == "cpu":
            os.environ |= {
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": str(threads),
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            }
        from vllm import LLM
        from vllm.platforms import current_platform

        if current_platform.device_type != device:
            raise WrongBuild(
                f"This vLLM is built for {current_platform.device_type}, not for {device}: "
                "measure that one, or leave vLLM out of --engines."
            )
        # Its own share of a GPU, 0.9, would have to be free; the other engines hold some of it.
        own: dict[str, Any] = {"gpu_memory_utilization": 0.5}
        if device == "cpu":
            own = {"enforce_eager": True, "block_size": 32}
        self.llm = LLM(
            str(model.path),
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=64,
            kv_cache_memory_bytes=2 * 2**30,
            use_tqdm_on_load=False,
            **own,
        )

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        outputs = self.llm.generate(
            [TokensPrompt(prompt_token_ids=ids) for ids in prompts],
            SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True, detokenize=True),
            use_tqdm=False,
        )
        return [len(output.outputs[0].token_ids) for output in outputs]


class Generate(Engine):
    """transformers: ``model.generate``."""

    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        loaded = AutoModelForCausalLM.from_pretrained(model.path, dtype=torch.float32, local_files_only=True)
        self.model = loaded.to(device).eval()
        self.model.generation_config.eos_token_id = None

    def generate(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        import torch

        ids = torch.tensor(prompts, device=self.model.device)
        with torch.inference_mode():
            output = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=output_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        answers: list[list[int]] = output[:, ids.shape[1] :].tolist()  # waits for the device
        return [len(answer) for answer in answers]


class Sequential(Generate):
    """One call after the other."""

    sequential = True

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        return [self.generate([ids], output_tokens)[0] for ids in prompts]


class Static(Generate):
    """All of them in one call: prompts and answers are equally long, so nothing is padded."""

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        return self.generate(prompts, output_tokens)


class Continuous(Generate):
    """transformers' own continuous batching, ``generate_batch``."""

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        # Left to itself it takes the memory of the other engines too.
        cache = ContinuousBatchingConfig(num_blocks=128, max_batch_tokens=2048)
        config = GenerationConfig(
            max_new_tokens=output_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        outputs = self.model.generate_batch(
            prompts,
            generation_config=config,
            continuous_batching_config=cache,
            progress_bar=False,
            persistent_manager=True,
        )
        return [len(output.generated_tokens) for output in outputs.values()]


ENGINES: dict[str, Callable[[], Engine]] = {
    "paged": Paged,
    "paged plain": partial(Paged, paged_kernels="plain"),
    "paged int8": partial(Paged, dtype="int8"),
    "vLLM": Vllm,
    "generate sequential": Sequential,
    "generate static": Static,
    "generate_batch": Continuous,
}
if find_spec("llama_cpp") is not None:
    ENGINES |= {f"llama.cpp {weights}": partial(Llama, weights) for weights in ("F32", "Q4_1")}
ON_CPU_ONLY = ("paged int8", "llama.cpp F32", "llama.cpp Q4_1")


def engines_on(device: str) -> list[str]:
    """Names of those that compute there."""
    return [name for name in ENGINES if device == "cpu" or name not in ON_CPU_ONLY]


async def find_model() -> PreparedModel:
    """SmolLM2, out of its package."""
    settings = Settings()
    return await prepare_model(settings.model, settings.cache_dir, lambda fraction, sentence: None)
