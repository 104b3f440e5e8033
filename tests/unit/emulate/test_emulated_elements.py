"""Elementwise kernels on the emulator: tensors that end anywhere in what a thread asks for ahead."""

from __future__ import annotations

import pytest
from emulated import SM80, SM90A, Beside, kernel_of
from statements import NAMED_FLOATS

import tilec.language as T
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import Target

#: By the guard of the length.
LENGTHS = {
    "dynamic": (Guard(), (1, 515, 1032)),
    ">=8": (Guard(min=8), (9, 515, 1021, 1024, 2050)),
    "%8": (Guard(div=8), (8, 520, 1032)),
}


@pytest.mark.parametrize("guard", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_elements_of_tensors_of_any_length(dtype: str, guard: str) -> None:
    block = 1024 if dtype == "float32" else 2048
    config = {"block": block, "threads": 128}
    known, lengths = LENGTHS[guard]
    kernel = kernel_of("elementwise.py:scale_add", {"n": known}, {"dtype": dtype}, **config)
    beside = Beside(kernel, SM90A)
    for length in lengths:
        assert beside.run({"n": length}) == [], length


def test_gated_rows_of_several_vectors_a_thread() -> None:
    dims = {"M": Guard(), "N": Guard(div=8), "ldg": Guard(div=8), "ldu": Guard(div=8)}
    config = {"rows": 4, "bN": 256, "threads": 64}
    beside = Beside(kernel_of("elementwise.py:silu_mul", dims, {"dtype": "float32"}, **config), SM90A)
    for rows, columns in ((1, 8), (5, 264)):
        assert beside.run({"M": rows, "N": columns, "ldg": 2 * columns, "ldu": 2 * columns}) == []


def test_floats_of_indices_have_names() -> None:
    assert Beside(parse_kernel(NAMED_FLOATS), SM90A).run({"n": 45}) == []


@pytest.mark.parametrize("by", [3, -5])
def test_columns_at_a_distance_in_rows_that_begin_anywhere(by: int) -> None:
    """Vectors that begin in front of a row, and have elements of it."""

    def build(M, N):
        @T.prim_func
        def main(X: T.Tensor((M, N), "float16"), Y: T.Tensor((M, N), "float16")):
            with T.Kernel(T.ceildiv(N, 4096), M, threads=32) as (bx, b):
                for i, j in T.Parallel(1, 4096):
                    Y[b + i, bx * 4096 + j] = X[b + i, bx * 4096 + j - by] * 2.0

        return main

    kernel = elaborate(build, name="moved", dims={"M": Guard(), "N": Guard()}, args={}, config={})
    assert Beside(kernel, SM90A).run({"M": 3, "N": 75}) == []


@pytest.mark.parametrize("target", [SM80, SM90A], ids=["sm_80", "sm_90a"])
def test_flags_that_a_thread_stores_once(target: Target) -> None:
    """Whether a tile counts, and which one, in memory of each thread."""

    def build(M, K):
        @T.prim_func
        def main(
            X: T.Tensor((M, K), "float16"), W: T.Tensor((K, 64), "float16"),
            live: T.Tensor((K // 32,), "int32"), Y: T.Tensor((M, 64), "float32"),
        ):  # fmt: skip
            with T.Kernel(T.ceildiv(M, 64), threads=128) as b:
                x, w = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
                sums = T.alloc_fragment((64, 64), "float32")
                counts, place = T.alloc_local((1,), "bool"), T.alloc_var("int32")
                T.clear(sums)
                for k in T.Pipelined(K // 32, num_stages=2):
                    counts[0] = live[k] > 0
                    place = k * 32
                    if counts[0]:
                        T.copy(X[b * 64, place], x)
                        T.copy(W[place, 0], w)
                        T.gemm(x, w, sums)
                T.copy(sums, Y[b * 64, 0])

        return main

    guards = {"M": Guard(), "K": Guard(eq=160)}
    kernel = elaborate(build, name="sparse", dims=guards, args={}, config={})
    assert Beside(kernel, target).run({"M": 70, "K": 160}) == []
