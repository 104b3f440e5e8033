"""Trips that branch on their number, on an emulated sm_90a: joined, or several at a time, and those left."""

from __future__ import annotations

import pytest
from emulated import SM90A, Beside

import tilec.language as T
from tilec.backends.cuda.nodes import WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.ir.nodes import For, If, Kernel, walk
from tilec.language.frontend.elaborate import elaborate


def scaled(M, N, K, times=2, bK=64, stages=3, dtype="float16"):
    """Sums of ``times`` trips count twice; other trips add 1."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            As, Bs = T.alloc_shared((64, bK), dtype), T.alloc_shared((64, bK), dtype)
            part, acc = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
            T.clear(part)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bK), num_stages=stages):
                T.copy(A[by * 64, k * bK], As)
                T.copy(B[bx * 64, k * bK], Bs)
                T.gemm(As, Bs, part, transpose_B=True)
                if k % times == times - 1:
                    for i, j in T.Parallel(64, 64):
                        acc[i, j] += part[i, j] * 2.0
                    T.clear(part)
                else:
                    for i, j in T.Parallel(64, 64):
                        acc[i, j] += 1.0
            T.copy(acc, C[by * 64, bx * 64])

    return main


def made(depth: Guard, **config: int) -> Kernel:
    """The kernel of one tile and any ``depth``."""
    dims = {"M": Guard(eq=64), "N": Guard(eq=64), "K": depth}
    return elaborate(scaled, name="kernel", dims=dims, args={}, config=config)


def products_between_branches(kernel: Kernel) -> int:
    """Products of the first loop that has some without a branch between them."""
    loops = [stmt for stmt in walk(lower(kernel, SM90A).launches[0].body) if isinstance(stmt, For)]
    counts = (sum(isinstance(stmt, WarpgroupProduct) for stmt in loop.body) for loop in loops)
    plain = (0 if any(isinstance(stmt, If) for stmt in loop.body) else n
             for loop, n in zip(loops, counts, strict=True))  # fmt: skip
    return next((count for count in plain if count), 0)


@pytest.mark.parametrize(
    ("depth", "times", "stages", "run", "together"),
    [
        (Guard(eq=320), 4, 3, 320, 4),
        (Guard(eq=320), 4, 2, 320, 4),
        (Guard(eq=512), 4, 3, 512, 4),
        (Guard(div=8), 2, 3, 72, 2),
        (Guard(div=8), 2, 3, 200, 2),
        (Guard(div=8), 3, 3, 200, 0),
    ],
    ids=["a trip left", "two stages", "none left", "one and a part", "an odd number", "no power of two"],
)
def test_trips_without_branches_add_up(depth, times, stages, run, together):
    kernel = made(depth, times=times, stages=stages)
    assert products_between_branches(kernel) == together
    assert Beside(kernel, SM90A).run({"M": 64, "N": 64, "K": run}) == []
