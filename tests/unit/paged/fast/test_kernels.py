"""Every way to compute a product, and attention of decoding rows, gives what torch's plain one gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.paged.attention import PagedStep, RowSpan, attend_decode
from backends.paged.fast import compiler
from backends.paged.fast.compiled import CompiledKernels
from backends.paged.fast.compiler import CannotCompile, NotForThisMachine
from backends.paged.fast.kernels import (
    DENSE,
    FBGEMM,
    ONEDNN,
    Kernels,
    UnsupportedDtype,
    float32_kernels,
    int8_kernels,
    of_compiled,
    of_compiled_int8,
)
from backends.paged.kv_cache import KVCache
from backends.records import ModelShape
from backends.settings import Settings

CPU = torch.device("cpu")


def compiled_here() -> CompiledKernels:
    """Skips where they are not meant to run; what does not compile fails."""
    try:
        return CompiledKernels(compiler.load(Settings().cache_dir / "kernels"))
    except NotForThisMachine as reason:
        pytest.skip(str(reason))


def kernels_of(name: str) -> Kernels:
    return of_compiled(compiled_here()) if name == "compiled" else {"dense": DENSE, "oneDNN": ONEDNN}[name]


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("name", ["dense", "oneDNN", "compiled"])
@pytest.mark.parametrize("num_outputs", [1, 16, 40, 49])
@pytest.mark.parametrize("num_rows", [*range(1, 20), 64])
def test_a_product_is_torchs_own(name: str, num_outputs: int, num_rows: int) -> None:
    x, weight, bias = numbers(num_rows, 24), numbers(num_outputs, 24), numbers(num_outputs)
    residual = numbers(num_rows, num_outputs)
    kernels = kernels_of(name)
    expected = torch.nn.functional.linear(x, weight)
    with torch.inference_mode():
        torch.testing.assert_close(kernels.linear(weight, None)(x), expected)
        torch.testing.assert_close(kernels.linear(weight, bias)(x), expected + bias)
        torch.testing.assert_close(kernels.linear(weight, bias).plus(x, residual), expected + bias + residual)
        gate = numbers(num_outputs, 24).flip(0)
        gated = torch.nn.functional.silu(torch.nn.functional.linear(x, gate)) * expected
        torch.testing.assert_close(kernels.gated(gate, weight)(x), gated)


@pytest.mark.parametrize("compiled", [of_compiled, of_compiled_int8])
def test_more_rows_than_a_cache_holds_are_multiplied_as_few_are(
    compiled: Callable[[CompiledKernels], Kernels],
) -> None:
    x, weight, residual = numbers(403, 600), numbers(49, 600), numbers(403, 49)
    product = compiled(compiled_here()).linear(weight, None)
    few = torch.cat([product.plus(x[i : i + 1], residual[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(product.plus(x, residual), few)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    heads=st.sampled_from([(1, 1), (4, 4), (6, 2), (9, 3)]),
    head_dim=st.sampled_from([2, 8, 20, 64]),
    data=st.data(),
)
def test_compiled_attention_reads_the_slots_of_each_row_and_no_other(
    lengths: list[int], heads: tuple[int, int], head_dim: int, data: st.DataObject
) -> None:
    num_heads, kv_heads = heads
    shape = ModelShape(
        num_layers=2,
        hidden_size=1,
        num_attention_heads=num_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=1,
    )
    cache = KVCache(shape, num_blocks=50, block_size=1)
    cache.slots.copy_(numbers(*cache.slots.shape))
    slots = torch.zeros(len(lengths), max(lengths) + 3, dtype=torch.long)
    for row, length in enumerate(lengths):
        order = data.draw(st.permutations(range(cache.num_slots)))
        slots[row, :length] = torch.tensor(order[:length])
    spans = [RowSpan(row, row + 1, length) for row, length in enumerate(lengths)]
    step = PagedStep.of(cache, slots[:, 0], spans, slots)
    packed = numbers(len(lengths), num_heads + 2, head_dim)  # queries lie among other numbers
    queries = packed[:, :num_heads]
    assert step.decode is not None
    torch.testing.assert_close(
        compiled_here().attend_decode(cache, 1, queries, step.decode, 0.3),
        attend_decode(cache, 1, queries, step.decode, 0.3),
    )


@pytest.mark.parametrize("name", ["compiled int8", "fbgemm int8"])
@pytest.mark.parametrize("num_outputs", [1, 40, 49])
@pytest.mark.parametrize("num_rows", [*range(1, 12), 64])
def test_a_product_in_int8_is_near_torchs_own(name: str, num_outputs: int, num_rows: int) -> None:
    x, weight, bias = numbers(num_rows, 62), numbers(num_outputs, 62), numbers(num_outputs)
    residual = numbers(num_rows, num_outputs)
    kernels = FBGEMM if name == "fbgemm int8" else of_compiled_int8(compiled_here())
    product = kernels.linear(weight, bias)
    expected = torch.nn.functional.linear(x, weight, bias)
    lengths = x.norm(dim=1).max() * weight.norm(dim=1).max()
    assert 0 < float((product(x) - expected).abs().max()) < 0.01 * float(lengths)
    torch.testing.assert_close(product.plus(x, residual), product(x) + residual)


def test_a_compiled_product_in_int8_is_that_of_the_rounded_numbers() -> None:
    """Whole numbers that fit are what they were: nothing is lost."""
    x = torch.arange(-128.0, 128.0).view(4, 64)
    x[:, 0] = 2**15 - 1
    weight = (numbers(33, 64) * 60).round().clamp(-127, 127)
    weight[:, 0] = 127
    product = of_compiled_int8(compiled_here()).linear(weight, None)(x)
    torch.testing.assert_close(product, torch.nn.functional.linear(x, weight))


def test_the_largest_numbers_do_not_overflow_in_int8() -> None:
    x, weight = torch.ones(3, 64), torch.ones(20, 64)
    product = of_compiled_int8(compiled_here()).linear(weight, None)
    torch.testing.assert_close(product(x), torch.full((3, 20), 64.0))
    torch.testing.assert_close(product(-x), torch.full((3, 20), -64.0))
    torch.testing.assert_close(product(0 * x), torch.zeros(3, 20))


def test_in_int8_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    product = of_compiled_int8(compiled_here()).linear(numbers(40, 64), None)
    x = numbers(7, 64)
    assert torch.equal(product(torch.cat((x, 100 * x)))[:7], product(x))
    assert torch.equal(product(x[3:4]), product(x)[3:4])


def test_int8_is_refused_on_a_gpu() -> None:
    with pytest.raises(UnsupportedDtype, match="int8 is for a CPU, and this engine runs on cuda"):
        int8_kernels(torch.device("cuda"), Path("unused"))


@pytest.mark.parametrize(
    ("command", "reason"),
    [("/does/not/exist", "No such file"), ("/bin/false", "failed"), ("python3", "unknown option|usage|Try")],
)
def test_where_nothing_can_be_compiled_onednn_computes_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, reason: str
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setenv("CC", command)
    with pytest.raises(CannotCompile, match=reason):
        compiler.load(tmp_path)
    assert float32_kernels(CPU, tmp_path).name.startswith("oneDNN (")
    assert list(tmp_path.iterdir()) == []


def test_no_compiler_and_another_processor_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert (
        float32_kernels(CPU, tmp_path).name == "oneDNN (for processors with AVX2, and this one has DEFAULT)"
    )
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert float32_kernels(CPU, tmp_path).name == "oneDNN (no C compiler)"


def test_what_was_compiled_is_taken_again(tmp_path: Path) -> None:
    compiled_here()
    compiler.load(tmp_path)
    (library,) = tmp_path.iterdir()
    made = library.stat().st_mtime_ns
    compiler.load(tmp_path)
    assert [library] == list(tmp_path.iterdir())
    assert library.stat().st_mtime_ns == made
