"""Groups that do the same with rows of their own become one; others stay two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilec.backends.cuda.warp_roles.twin_groups import with_joined_twins
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

TEXT = """
kernel("small")
M = dim(int32)
X = tensor(float16, (M, 256), ("M", "256"), access="in")
W = tensor(float16, (256, 64), ("256", "64"), access="in")
V = tensor(float32, (M,), ("M",), access="in")
C = tensor(float32, (M, 64), ("M", "64"), access="out")
with launch((M + 127) // 128, threads=(384, 1, 1)) as ((bx,), (tx, ty, tz)):
    up = alloc(float16, (2, 64, 64), "shared.dyn")
    low = alloc(float16, (2, 64, 64), "shared.dyn")
    w = alloc(float16, (2, 64, 64), "shared.dyn")
    full = alloc_barriers((128, 128))
    free = alloc_barriers((256, 256))
    row = bx * 128
    with thread_group(0, 128):
        for k in serial(0, 4, 1):
            barrier_wait(free[k % 2], k // 2 % 2 ^ 1)
            bulk_load(X[row:+64, k * 64:+64], up[k % 2:+1, 0:+64, 0:+64], full[k % 2])
            bulk_load(X[row + 64:+64, k * 64:+64], low[k % 2:+1, 0:+64, 0:+64], full[k % 2])
            bulk_load(W[k * 64:+64, 0:+64], w[k % 2:+1, 0:+64, 0:+64], full[k % 2])
            barrier_arrive(full[k % 2])
    with thread_group(128, 128):
        acc = alloc(float32, (64, 64), "local.fragment")
        most = alloc(float32, (64,), "local.fragment")
        fill(acc[0:+64, 0:+64], 0.0)
        for k_1 in serial(0, 4, 1):
            barrier_wait(full[k_1 % 2], k_1 // 2 % 2)
            gemm(up[k_1 % 2:+1, 0:+64, 0:+64], w[k_1 % 2:+1, 0:+64, 0:+64], acc[0:+64, 0:+64], clear=False)
            barrier_arrive(free[k_1 % 2])
        reduce_max(acc[0:+64, 0:+64], most[0:+64], axis=1, clear=True)
        for i, j in parallel(64, 64):
            acc[i, j] = select(row + i < M, acc[i, j] - most[i], V[row + i])
        copy(acc[0:+64, 0:+64], C[row:+64, 0:+64])
    with thread_group(256, 128):
        behind = row + 64
        acc_1 = alloc(float32, (64, 64), "local.fragment")
        most_1 = alloc(float32, (64,), "local.fragment")
        fill(acc_1[0:+64, 0:+64], 0.0)
        for k_2 in serial(0, 4, 1):
            barrier_wait(full[k_2 % 2], k_2 // 2 % 2)
            gemm(low[k_2 % 2:+1, 0:+64, 0:+64], w[k_2 % 2:+1, 0:+64, 0:+64], acc_1[0:+64, 0:+64], clear=False)
            barrier_arrive(free[k_2 % 2])
        reduce_max(acc_1[0:+64, 0:+64], most_1[0:+64], axis=1, clear=True)
        for i_1, j_1 in parallel(64, 64):
            acc_1[i_1, j_1] = select(behind + i_1 < M, acc_1[i_1, j_1] - most_1[i_1], V[behind + i_1])
        copy(acc_1[0:+64, 0:+64], C[behind:+64, 0:+64])
"""


def made(text: str) -> str:
    """The kernel with its twins joined."""
    kernel = parse_kernel(text)
    (launch,) = kernel.launches
    return format_kernel(replace(kernel, body=(with_joined_twins(launch),)))


def test_twins_are_one_group_with_the_rows_of_both():
    text = made(TEXT)
    assert text.count("thread_group") == 2
    assert "with thread_group(128, 256):" in text
    assert "bulk_load(X[row:+128, k * 64:+64], up[k % 2:+1, 0:+128, 0:+64], full[k % 2])" in text
    assert "acc = alloc(float32, (128, 64)" in text
    assert "for i, j in parallel(128, 64):" in text
    assert "copy(acc[0:+128, 0:+64], C[bx * 128:+128, 0:+64])" in text
    assert "low" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("C[behind:+64", "C[behind + 64:+64"),
        ("C[behind:+64", "C[row:+64"),
        ("behind + i_1 < M", "behind + i_1 < M - 1"),
        ("V[behind + i_1]", "V[row + i_1]"),
        ("most_1[i_1], V", "most_1[j_1], V"),
        ("fill(acc_1[0:+64, 0:+64], 0.0)", "fill(acc_1[0:+64, 0:+64], 1.0)"),
        ("X[row + 64:+64, k", "X[row + 128:+64, k"),
        ("for k_2 in serial(0, 4, 1)", "for k_2 in serial(0, 3, 1)"),
        ("gemm(low", "gemm(up"),
        ("barrier_arrive(free[k_2 % 2])", "if tx == 256:\n                barrier_arrive(free[k_2 % 2])"),
        ("reduce_max(acc_1", "reduce_min(acc_1"),
        ("        behind = row", "        fill(low[0:+2, 0:+64, 0:+64], 0.0)\n        behind = row"),
        ("thread_group(256, 128)", "thread_group(256, 64)"),
    ],
    ids="rows,same rows,mask,vector,column,fill,load,trips,tile,one,reduction,more,threads".split(","),
)
def test_others_stay_two_groups(old, new):
    assert old in TEXT
    text = TEXT.replace(old, new)
    assert made(text) == format_kernel(parse_kernel(text))


def test_tiles_that_are_used_in_other_ways_keep_two_groups():
    store = "copy(low[0:+1, 0:+64, 0:+64], X[0:+64, 0:+64])"
    text = TEXT.replace('access="in")\nW', 'access="inout")\nW').replace(
        "    with thread_group(0, 128):\n", f"    with thread_group(0, 128):\n        {store}\n"
    )
    assert made(text).count("thread_group") == 3
