"""How many blocks of a launch with one computing warpgroup a multiprocessor is to hold."""

from __future__ import annotations

import re

import pytest

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


def bounds(columns: int, depth: int, stages: int, copies: int = 0, made: int = 0) -> tuple[int, ...]:
    """The launch bounds of a product of 64 rows, whose rings take ``stages`` times what a trip brings, and
    whose sums each trip copies so often, after the first of so many elements that threads make."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 1024), "float16"),
        B: T.Tensor((1024, 512), "float16"),
        C: T.Tensor((256, 512), "float32"),
    ):
        with T.Kernel(512 // columns, 4, threads=128) as (bx, by):
            a, b = T.alloc_shared((64, depth), "float16"), T.alloc_shared((depth, columns), "float16")
            c = T.alloc_fragment((64, columns), "float32")
            own = T.alloc_shared((max(made, 1),), "float32")
            fragments = [T.alloc_fragment((64, columns), "float32") for _ in range(copies)]
            T.clear(c)
            for k in T.Pipelined(1024 // depth, num_stages=stages):
                T.copy(A[by * 64, k * depth], a)
                T.copy(B[k * depth, bx * columns], b)
                for i in T.Parallel(made):
                    own[i] = T.cast(A[k, i], "float32") - T.cast(A[k, 2 * i], "float32")
                T.gemm(a, b, c)
                for i, j in T.Parallel(64, columns):
                    c[i, j] = T.max(c[i, j], own[0] if made else 0)
                for d in fragments:
                    T.copy(c, d)
                    for i, j in T.Parallel(64, columns):
                        c[i, j] = d[i, j] + 1
            T.copy(c, C[by * 64, bx * columns])

    lowered = lower(elaborate(main, name="kernel", dims={}, args={}, config={}), SM90A)
    source = cuda.source(to_tir(lowered, SM90A), SM90A, "kernel")
    (found,) = set(re.findall(r"__launch_bounds__\(([\d, ]+)\)", source))
    return tuple(int(number) for number in found.split(","))


@pytest.mark.parametrize(
    ("columns", "depth", "stages", "found"),
    [
        (64, 64, 3, (160, 4)),  # rings of 48 KiB: shared memory says how many
        (128, 64, 4, (160, 2)),  # 96 KiB
        (256, 64, 2, (160, 2)),  # 80 KiB; of two blocks' 168 registers a thread the product wants 158
        (256, 32, 2, (160,)),  # 40 KiB would do for five, whose threads have 72 registers
        (128, 32, 2, (160,)),
    ],
)
def test_shared_memory_says_how_many_where_registers_are_enough(columns, depth, stages, found):
    assert bounds(columns, depth, stages) == found


def test_fragments_that_are_alive_one_after_the_other_leave_registers():
    assert bounds(64, 64, 3, copies=3) == (160, 4)


@pytest.mark.parametrize(("made", "threads"), [(256, 160), (257, 256)])
def test_one_warp_makes_few_elements(made, threads):
    assert bounds(64, 64, 3, made=made)[0] == threads
