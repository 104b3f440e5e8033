"""Nests of loops around a pipelined loop of products become one loop; others stay."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.idioms.trips.join_nests import JoinNests
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HEAD = """
kernel("small")
X = tensor(float16, (9, 4096, 64), ("9", "4096", "64"), access="in")
T = tensor(int32, (9,), ("9",), access="in")
Z = tensor(float32, (64, 64), ("64", "64"), access="out")
n = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    tile = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    fill(acc[0:+64, 0:+64], 0.0)
"""
TRIP = """copy(X[{tap}:+1, k * 64:+64, 0:+64], tile[0:+64, 0:+64])
gemm(tile[0:+64, 0:+64], tile[0:+64, 0:+64], acc[0:+64, 0:+64], clear=False)
"""


def loop(head: str, body: str) -> str:
    """A loop over lines."""
    return f"for {head}:\n" + "".join(f"    {line}\n" for line in body.splitlines())


def inner(tap: str, ends: str = "0, n") -> str:
    """The pipelined loop over the rows of a tap."""
    return loop(f"k in pipelined({ends}, num_stages=2)", TRIP.format(tap=tap))


def made(body: str) -> str:
    """What the rule makes of statements behind `HEAD`; nothing where it leaves them."""
    kernel = parse_kernel(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    found = format_kernel(JoinNests().apply(kernel, parse_target("sm_90a")))
    return "" if found == format_kernel(kernel) else found


def test_a_nest_is_one_loop_over_all_trips():
    text = made(loop("y in serial(0, 3, 1)", loop("x in serial(0, 3, 1)", inner("y * 3 + x"))))
    assert "for y_x_k in pipelined(0, max(n, 0) * 9, num_stages=2):" in text
    assert "X[y_x_k // n // 3 * 3 + y_x_k // n % 3:+1, y_x_k % n * 64:+64, 0:+64]" in text


def test_starts_and_names_stay():
    text = made(loop("y in serial(2, 5, 1)", "tap = y + 1\n" + inner("tap", "1, n")))
    assert "for y_k in pipelined(0, max(n - 1, 0) * 3, num_stages=2):" in text
    assert "tap = y_k // (n - 1) + 2 + 1" in text or "tap = y_k // (n - 1) + 3" in text
    assert "k % (n - 1)" in text


@pytest.mark.parametrize(
    "body",
    [
        inner("0"),
        loop("y in serial(0, 3, 1)", inner("y", "0, y")),
        loop("y in serial(0, 3, 1)", inner("y", "0, T[0]")),
        loop("y in serial(0, 3, 1)", "tap = T[y]\n" + inner("tap")),
        loop("y in serial(0, 6, 2)", inner("y")),
        loop("y in serial(0, 3, 1)", "fill(acc[0:+64, 0:+64], 0.0)\n" + inner("y")),
        loop("y in serial(0, 3, 1)", inner("y") + "copy(acc[0:+64, 0:+64], Z[0:+64, 0:+64])\n"),
    ],
    ids=["one loop", "end", "memory", "looked up", "step", "statement before", "statement behind"],
)
def test_other_loops_stay(body):
    assert made(body) == ""


def taps(M, N, K):
    """A product summed over taps, each with a matrix of its own."""

    @T.prim_func
    def kernel(
        A: T.Tensor((9, M, K), "float16"), B: T.Tensor((9, N, K), "float16"), C: T.Tensor((M, N), "float16")
    ):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=256) as (bx, by):
            left, right = (T.alloc_shared((128, 64), "float16") for _ in range(2))
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for tap in T.serial(9):
                for k in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                    T.copy(A[tap, by * 128 : by * 128 + 128, k * 64 : k * 64 + 64], left)
                    T.copy(B[tap, bx * 128 : bx * 128 + 128, k * 64 : k * 64 + 64], right)
                    T.gemm(left, right, acc, transpose_B=True)
            T.copy(acc, C[by * 128, bx * 128])

    return kernel


def test_a_load_does_not_wait_for_quotients_of_its_trip():
    target = parse_target("sm_90a")
    made = elaborate(taps, name="taps", dims={name: Guard(div=8) for name in "MNK"}, args={}, config={})
    text = cuda.source(to_tir(lower(made, target), target), target, "taps").rsplit("__global__", 1)[1]
    trip = text[text.index("int part_of_trip") :]
    loads = trip[trip.index("mbarrier_wait") : trip.index("_ptr_1[0] + 1")]
    assert "cp_async_bulk_tensor" in loads
    assert " % " not in loads
    assert " / " not in loads
