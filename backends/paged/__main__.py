"""``python -m backends.paged "Once upon a time"``: the engine without server, process or screen."""

from __future__ import annotations

import argparse
import time

from backends.base import SamplingParams
from backends.models.build import build
from backends.models.locate import locate
from backends.paged.config import WorkerConfig
from backends.paged.core import EngineCore
from backends.paged.worker import build_core
from backends.settings import Settings
from backends.worker_messages import AddRequest


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m backends.paged", description=__doc__)
    parser.add_argument("prompts", nargs="+", help="answered together, in one batch")
    parser.add_argument("--model", default="smollm2", help="hub id, local path, or smollm2")
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--num-blocks", type=int, default=None)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--dtype", choices=("float32", "int8"), default="float32")
    parser.add_argument("--kernels", choices=("fast", "plain"), default="fast")
    return parser.parse_args()


def build_engine(arguments: argparse.Namespace) -> EngineCore:
    """Prepare the weights where that was not done yet, and load them."""
    defaults = Settings(model=arguments.model)
    return build_core(
        WorkerConfig(
            model=build(locate(arguments.model), defaults.cache_dir, lambda fraction, sentence: None),
            cache_dir=str(defaults.cache_dir),
            device=defaults.device,
            max_model_len=defaults.max_model_len,
            block_size=arguments.block_size,
            num_blocks=arguments.num_blocks,
            max_num_seqs=defaults.max_num_seqs,
            max_num_batched_tokens=defaults.max_num_batched_tokens,
            dtype=arguments.dtype,
            kernels=arguments.kernels,
            memory_share=defaults.gpu_memory_utilization,
        )
    )


def main() -> None:
    """Answer all prompts, then print the texts and the speed."""
    arguments = parse_arguments()
    core = build_engine(arguments)
    sampling = SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed
    )
    texts: dict[str, str] = {}
    for number, prompt in enumerate(arguments.prompts):
        texts[str(number)] = prompt
        core.add(AddRequest(request_id=str(number), prompt_ids=core.codec.encode(prompt), sampling=sampling))
    started, num_tokens = time.monotonic(), 0
    while core.has_work():
        update = core.step()
        num_tokens += len(update.tokens)
        for token in update.tokens:
            texts[token.request_id] += token.text
    seconds = time.monotonic() - started
    for text in texts.values():
        print(f"{text}\n")
    print(f"{num_tokens} tokens in {seconds:.2f} s: {num_tokens / seconds:.1f} tokens/s")


if __name__ == "__main__":
    main()
