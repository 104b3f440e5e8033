"""Nests of loops around a pipelined loop of products become one loop; others stay."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.join_nests import JoinNests
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
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
