"""Sums that leave a product in every trip: where they are cleared, where their factors are read."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.sums.forward_factors import ForwardFactors
from tilec.backends.cuda.matmul.strategy import Matmul
from tilec.backends.cuda.passes.products.clear_at_begin import ClearAtBegin
from tilec.backends.pipeline import lower
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """
kernel("blocks")
K = dim(int32, div=128)
A = tensor(float8_e4m3fn, (128, K), ("128", "K"), access="in")
B = tensor(float8_e4m3fn, (128, K), ("128", "K"), access="in")
of_A = tensor(float32, (K, 128), ("K", "128"), access="in")
of_B = tensor(float32, (K,), ("K",), access="inout")
C = tensor(bfloat16, (128, 128), ("128", "128"), access="out")
with launch(1, threads=(256, 1, 1)) as (bx,):
    left = alloc(float8_e4m3fn, (128, 128), "shared.dyn")
    right = alloc(float8_e4m3fn, (128, 128), "shared.dyn")
    scale = alloc(float32, (128,), "shared.dyn")
    other = alloc(float32, (128,), "shared.dyn")
    part = alloc(float32, (128, 128), "local.fragment")
    sums = alloc(float32, (128, 128), "local.fragment")
    fill(sums[0:+128, 0:+128], 0.0)
    fill(part[0:+128, 0:+128], 0.0)
"""
LOADS = """copy(A[0:+128, k * 128:+128], left[0:+128, 0:+128])
copy(B[0:+128, k * 128:+128], right[0:+128, 0:+128])
"""
FACTORS = "for i in parallel(128):\n    scale[i] = of_A[k, i] * of_B[k]\n"
PRODUCT = (
    "gemm(left[0:+128, 0:+128], right[0:+128, 0:+128], part[0:+128, 0:+128], trans_b=True, clear=False)\n"
)
ADDED = "for i, j in parallel(128, 128):\n    sums[i, j] = sums[i, j] + part[i, j] * scale[i]\n"
CLEAR = "fill(part[0:+128, 0:+128], 0.0)\n"
STORE = "    copy(sums[0:+128, 0:+128], C[0:+128, 0:+128])\n"
TRIP = LOADS + FACTORS + PRODUCT + ADDED + CLEAR
LOOP = "for k in pipelined(0, K // 128, num_stages=3):\n"


def kernel(trip: str, loop: str = LOOP, behind: str = STORE) -> str:
    """The text of a kernel with a loop of such trips."""
    body = "".join(f"        {line}\n" for line in trip.splitlines())
    return f"{HEAD}    {loop}{body}{behind}"


def made(rule, text: str) -> str:
    """What a rule makes of a kernel; nothing where it leaves it."""
    before = parse_kernel(text)
    found = format_kernel(rule.apply(before, SM90A))
    return "" if found == format_kernel(before) else found


@pytest.mark.parametrize("loop", [LOOP, "for k in serial(0, K // 128, 1):\n"])
def test_what_each_trip_clears_at_its_end_is_cleared_at_its_begin(loop):
    text = made(ClearAtBegin(), kernel(TRIP, loop))
    assert text.count("fill(part") == 1
    assert text.index("for k in") < text.index("fill(part") < text.index("copy(A")


def test_what_others_read_is_cleared_behind_the_loop_too():
    text = made(ClearAtBegin(), kernel(TRIP, behind=STORE.replace("sums", "part")))
    behind = text[text.index("sums[i, j] + part") :]
    assert text.count("fill(part") == 2
    assert behind.index("fill(part") < behind.index("copy(part")


@pytest.mark.parametrize(
    "text",
    [
        kernel(TRIP.replace(CLEAR, "")),
        kernel(TRIP.replace(CLEAR, CLEAR.replace("0.0", "1.0"))),
        kernel(TRIP.replace(CLEAR, CLEAR.replace("0:+128, 0:+128", "0:+64, 0:+128"))),
        kernel(TRIP).replace("    " + CLEAR, "", 1),
        kernel(TRIP, "copy(part[0:+128, 0:+128], C[0:+128, 0:+128])\n    " + LOOP),
        kernel("if k > 3:\n    break\n" + TRIP, "for k in serial(0, K // 128, 1):\n"),
        kernel(TRIP, LOOP.replace("=3)", "=3, stage=(0, 0, 0, 1, 1, 1), order=(0, 1, 2, 3, 4, 5))")),
    ],
    ids=["not cleared", "filled", "a part", "not cleared before", "read before", "left early", "in stages"],
)
def test_other_trips_clear_where_they_do(text):
    assert made(ClearAtBegin(), text) == ""


@pytest.mark.parametrize(
    ("trip", "factor"),
    [
        (TRIP, "part[i, j] * (of_A[k, i] * of_B[k])"),
        (TRIP.replace(FACTORS, "s = of_B[k]\n" + FACTORS.replace("of_B[k]", "s")),
         "part[i, j] * (of_A[k, i] * of_B[k])"),
        (TRIP.replace(FACTORS, "copy(of_A[k:+1, 0:+128], scale[0:+128])\n"), "part[i, j] * of_A[k, i]"),
        (TRIP.replace(FACTORS, FACTORS + FACTORS.replace("scale", "other")).replace(
            "* scale[i]", "* scale[i] * other[j]"),
         "part[i, j] * (of_A[k, i] * of_B[k]) * (of_A[k, j] * of_B[k])"),
    ],
    ids=["computed", "a name", "copied", "two tiles"],
)  # fmt: skip
def test_factors_of_sums_are_read_where_they_come_from(trip, factor):
    text = made(ForwardFactors(), kernel(trip))
    assert f"sums[i, j] = sums[i, j] + {factor}\n" in text.replace("i_1", "i").replace("i_2", "i")
    assert "scale[" not in text
    assert "s = " not in text.replace("sums = ", "")


@pytest.mark.parametrize(
    "text",
    [
        kernel(TRIP.replace("sums[i, j] + part[i, j] * scale[i]", "part[i, j] * scale[i]")),
        kernel(TRIP.replace(PRODUCT, "").replace("part[i, j] *", "sums[i, j] *")),
        kernel(TRIP, behind=STORE + "    copy(scale[0:+128], of_B[0:+128])\n"),
        kernel(TRIP, behind=STORE + "    copy(other[0:+128], of_B[0:+128])\n"),
        kernel(TRIP.replace(FACTORS + PRODUCT + ADDED, PRODUCT + ADDED + FACTORS)),
        kernel(TRIP.replace("of_A[k, i]", "other[i]")),
        kernel(TRIP.replace("scale[i", "wide[0, i")).replace(
            "scale = alloc(float32, (", "wide = alloc(float32, (1, "
        ),
    ],
    ids=[
        "overwritten",
        "no product",
        "used behind",
        "written by the launch",
        "the trip before's",
        "from a tile",
        "two axes",
    ],
)
def test_other_tiles_stay(text):
    assert made(ForwardFactors(), text) == ""


def test_block_sums_written_so_have_the_roles_of_products():
    (launch,) = lower(parse_kernel(kernel(TRIP)), SM90A, until="assign_roles").launches
    assert isinstance(launch.strategy, Matmul)
