"""``python -m backends.paged "Once upon a time"``: the engine without server, process or screen."""

from __future__ import annotations

import argparse
import time

from backends.base import SamplingParams
from backends.models.build import build
from backends.models.locate import locate
from backends.paged.core import EngineCore
from backends.paged.engine import PagedEngine
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
    settings = Settings(
        model=arguments.model,
        num_blocks=arguments.num_blocks,
        block_size=arguments.block_size,
        dtype=arguments.dtype,
        paged_kernels=arguments.kernels,
    )
    engine = PagedEngine(settings)
    engine.model = build(locate(settings.model), settings.cache_dir, lambda fraction, sentence: None)
    return build_core(engine.worker_config(engine.model))


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
