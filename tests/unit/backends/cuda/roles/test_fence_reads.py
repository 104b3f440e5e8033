"""Fences between what threads have read and TMA, which fills it again."""

from __future__ import annotations

from itertools import pairwise

import pytest

import tilec.language as T
from tilec.backends.cuda.nodes import AsyncGather, BringOperand, GiveBack, ProxyFence
from tilec.backends.cuda.passes.waits.fence_reads import FenceReads
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Kernel, walk
from tilec.ir.nodes.threads import Sync
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")


def dequantised(form: str):
    """Weights of bytes that threads widen, in registers, or that a product takes as they are; ``beside`` rows
    that come by cp.async."""
    dtype, rows = "uint8" if form == "widened" else "float8_e4m3fn", 60 if form == "beside" else 64

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, 256), "float16" if form == "widened" else "float8_e4m3fn"),
        W: T.Tensor((256, 128), dtype),
        Y: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            xs = T.alloc_shared((64, 64), X.dtype)
            ws = T.alloc_shared((64, 128), dtype)
            wd = T.alloc_fragment((128, 64), "float16")
            y = T.alloc_fragment((128, 64), "float32")
            T.clear(y)
            for k in T.Pipelined(4, num_stages=2):
                if form == "beside":
                    for i, j in T.Parallel(64, 64):
                        xs[i, j] = X[T.min(i, rows - 1), k * 64 + j]
                else:
                    T.copy(X[0, k * 64], xs)
                T.copy(W[k * 64, 0], ws)
                if form != "widened":
                    T.gemm(ws, xs, y, transpose_A=True, transpose_B=True)
                else:
                    for i, j in T.Parallel(128, 64):
                        wd[i, j] = ws[j, i].astype("float16")
                    T.gemm(wd, xs, y, transpose_B=True)
            T.copy(y, Y)

    return kernel


def lowered(form: str) -> Kernel:
    return lower(elaborate(dequantised(form), name="kernel", dims={}, args={}, config={}), SM90A)


def in_front_of_returns(kernel: Kernel, tile: str) -> list[str]:
    """What stands right in front of each return of a ring."""
    stmts = list(walk(kernel.body))
    return [
        type(before).__name__
        for before, stmt in pairwise(stmts)
        if isinstance(stmt, GiveBack) and str(stmt.tiles[0].name) == tile
    ]


def test_what_threads_read_goes_back_behind_a_fence():
    made = lowered("widened")
    assert in_front_of_returns(made, "ws") == ["ProxyFence"]
    assert "ProxyFence" not in in_front_of_returns(made, "xs"), "wgmma alone reads it"


def test_what_lanes_bring_for_a_product_needs_none():
    made = lowered("across")
    assert any(isinstance(stmt, BringOperand) for stmt in walk(made.body))
    assert not any(isinstance(stmt, ProxyFence) for stmt in walk(made.body))


def test_what_lanes_bring_beside_cp_async_goes_back_behind_a_fence():
    made = lowered("beside")
    stmts = list(walk(made.body))
    assert any(isinstance(stmt, AsyncGather) for stmt in stmts)
    assert any(isinstance(stmt, BringOperand) for stmt in stmts)
    assert any(
        isinstance(before, ProxyFence) and isinstance(stmt, GiveBack) for before, stmt in pairwise(stmts)
    )


TEXT = """kernel("kernel")
S = tensor(float32, (4, 64), ("4", "64"), access="in")
C = tensor(float32, (4, 64), ("4", "64"), access="out")
with launch(1, threads=(256, 1, 1)) as (bx,):
    s_full = alloc(uint64, (2,), "shared.barrier", place=("shared", 0))
    s_empty = alloc(uint64, (2,), "shared.barrier", place=("shared", 128))
    s = alloc(float32, (2, 64), "shared.dyn", place=("shared", 1024))
    x = alloc(float32, (64,), "local.fragment", layout="2:1@reg 4:1@lane 8:2@reg")
    with thread_group(128, 128):
        for k in serial(0, 4, 1):
            box_load(S[k:+1, 0:+64], s[k % 2:+1, 0:+64], s_full[k % 2])
    with thread_group(0, 128):
        for k_1 in serial(0, 4, 1):
            for j in threads(64, layout="2:1@reg 4:1@lane 8:2@reg"):
                x[j] = s[k_1 % 2, j]
            give_back(s_empty[k_1 % 2], s, once={once})
"""


@pytest.mark.parametrize("once", [False, True])
def test_warps_that_give_back_as_one_meet_first(once: bool):
    made = FenceReads().apply(parse_kernel(TEXT.format(once=once)), SM90A)
    *_, earlier, last, given = [type(stmt) for stmt in walk(made.body)]
    assert given is GiveBack
    assert (earlier, last) == (ProxyFence, Sync) if once else last is ProxyFence
