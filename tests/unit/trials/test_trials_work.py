"""Products and bytes of calls, counted on tile IR; and the ceilings that they are held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_trials_indices import LOOKUP

from tilec.backends.ceilings import Ceilings, kept
from tilec.bench.shapes import typical_shapes
from tilec.ir.guards import Guard
from tilec.package.model import ParamRecord
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.work import work_of

GEMM = """\
kernel("gemm")
M = dim(int32)
N = dim(int32)
K = dim(int32)
A = tensor(float16, (M, K), ("M", "K"), access="in")
B = tensor(float16, (N, K), ("N", "K"), access="in")
C = tensor(float16, (M, N), ("M", "N"), access="inout")
with launch((N + 63) // 64, (M + 31) // 32, threads=(128, 1, 1)) as (bx, by):
    As = alloc(float16, (32, 16), "shared.dyn")
    Bs = alloc(float16, (64, 16), "shared.dyn")
    acc = alloc(float32, (32, 64), "local.fragment")
    fill(acc[0:+32, 0:+64], 0.0)
    for k in pipelined(0, (K + 15) // 16, num_stages=2):
        copy(A[by * 32:+32, k * 16:+16], As[0:+32, 0:+16])
        copy(B[bx * 64:+64, k * 16:+16], Bs[0:+64, 0:+16])
        gemm(As[0:+32, 0:+16], Bs[0:+64, 0:+16], acc[0:+32, 0:+64], trans_b=True, clear=False)
    copy(acc[0:+32, 0:+64], C[by * 32:+32, bx * 64:+64])
"""
#: Blocks of 16 rows and columns up to the diagonal; rows end where an integer tensor says.
TRIANGLE = """\
kernel("triangle")
M = dim(int32)
length = tensor(int32, (1,), ("1",), access="in")
A = tensor(float32, (M, M), ("M", "M"), access="in")
C = tensor(float32, (M, M), ("M", "M"), access="out")
with launch((M + 15) // 16, threads=(128, 1, 1)) as (bx,):
    As = alloc(float32, (16, 16), "shared.dyn")
    acc = alloc(float32, (16, 16), "local.fragment")
    limit = alloc(int32, (1,), "local.var")
    limit[0] = min(length[0], bx * 16 + 16)
    for k in serial(0, (M + 15) // 16, 1):
        if k * 16 >= limit[0]:
            break
        copy(A[bx * 16:+16, k * 16:+16], As[0:+16, 0:+16])
        gemm(As[0:+16, 0:+16], As[0:+16, 0:+16], acc[0:+16, 0:+16], clear=False)
"""


def tensor(name: str, dtype: str, access: str, *extents: str) -> ParamRecord:
    return ParamRecord(name, "tensor", dtype, access, extents=extents)


def facts(name: str, *params: ParamRecord, dims: tuple[str, ...], **guards: Guard) -> KernelFacts:
    variant = VariantFacts(0, "x86-64-v2", guards, frozenset(), "")
    return KernelFacts(name, params, dims, (variant,), {})


@pytest.mark.parametrize("shape", [(64, 64, 64), (1, 1, 1), (33, 65, 17), (31, 200, 5)])
def test_products_are_those_of_the_tensors_and_not_of_the_tiles(shape: tuple[int, int, int]) -> None:
    kernel = facts(
        "gemm",
        tensor("A", "float16", "in", "M", "K"),
        tensor("B", "float16", "in", "N", "K"),
        tensor("C", "float16", "inout", "M", "N"),
        dims=("M", "N", "K"),
    )
    m, n, k = shape
    work = work_of(kernel, GEMM, {"M": m, "N": n, "K": k}, {})
    assert work.flops == {"float16": 2 * m * n * k}
    assert work.bytes == 2 * (m * k + n * k + 2 * m * n)


def test_blocks_are_counted_by_what_they_decide() -> None:
    kernel = facts(
        "triangle",
        tensor("length", "int32", "in", "1"),
        tensor("A", "float32", "in", "M", "M"),
        tensor("C", "float32", "out", "M", "M"),
        dims=("M",),
    )
    for length, pairs in ((64, 1 + 2 + 3 + 4), (32, 1 + 2 + 2 + 2), (0, 0)):
        work = work_of(kernel, TRIANGLE, {"M": 64}, {"length": np.int32([length])})
        assert work.total_flops == pairs * 2 * 16**3
    assert "depends on" in work_of(kernel, TRIANGLE, {"M": 64}, {}).unknown


def test_a_table_counts_by_the_rows_that_are_looked_up() -> None:
    params = (tensor("ids", "int32", "in", "n"), tensor("table", "float32", "in", "V", "8"))
    kernel = facts("lookup", *params, tensor("y", "float32", "out", "n", "8"), dims=("n", "V"))
    few = work_of(kernel, LOOKUP, {"n": 10, "V": 1000}, {})
    assert (few.bytes, few.flops) == (4 * (10 + 10 * 8 + 10 * 8), {})
    assert work_of(kernel, LOOKUP, {"n": 10, "V": 4}, {}).bytes == 4 * (10 + 4 * 8 + 10 * 8)


def test_ceilings_count_each_type_at_its_rate() -> None:
    machine = Ceilings("one", {"float32": 1e9, "bfloat16": 2e9}, 1e8)
    assert machine.compute_seconds({"float32": 10**9, "bfloat16": 10**9}) == 1.5
    assert [machine.rate(name) for name in ("float16", "int8", "float64")] == [1e9, 1e9, 1e9]
    assert Ceilings("none", {}, 1.0).compute_seconds({"int8": 1}) is None
    assert machine.memory_seconds(200) == 2e-6


def test_ceilings_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    calls = []

    def measure() -> Ceilings:
        calls.append(1)
        return Ceilings("one", {"float32": 1.5e9}, 2.5e8)

    first = [kept("one", "text", measure) for _ in range(2)]
    assert first[0] == first[1]
    assert kept("one", "another text", measure) == kept("two", "text", measure)
    assert len(calls) == 3


def test_typical_shapes_keep_to_guards_and_memory() -> None:
    square = tensor("A", "float32", "in", "M", "N")
    (shape,) = typical_shapes(facts("k", square, dims=("M", "N"), M=Guard(min=1, max=64), N=Guard(div=48)))
    assert shape == {"M": 64, "N": 1056}
    cube = tensor("A", "float32", "in", "M", "N", "K")
    (shape,) = typical_shapes(facts("k", cube, dims=("M", "N", "K"), K=Guard(eq=64)))
    assert shape == {"M": 256, "N": 256, "K": 64}
