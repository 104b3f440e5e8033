"""First trips that stand in front of their loops become trips of them; others stay."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.trips.join_first_trips import JoinFirstTrips
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

HEAD = """
kernel("small")
X = tensor(float16, (4096, 64), ("4096", "64"), access="in")
Z = tensor(float16, (64, 64), ("64", "64"), access="out")
n = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    tile = alloc(float16, (2, 64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    part = alloc(float32, (64, 64), "local.fragment")
"""
LOAD = "copy(X[{row}:+64, 0:+64], tile[{stage}:+1, 0:+64, 0:+64])\n"
STAGE = "tile[{stage}:+1, 0:+64, 0:+64]"
PRODUCT = f"gemm({STAGE}, {STAGE}, {{sum}}[0:+64, 0:+64], clear={{clear}})\n"


def trip(row: str, stage: str, clear: str = "False", sum: str = "acc") -> str:
    """A load and a product."""
    return LOAD.format(row=row, stage=stage) + PRODUCT.format(stage=stage, clear=clear, sum=sum)


def loop(head: str, body: str) -> str:
    return f"for k in {head}:\n" + "".join(f"    {line}\n" for line in body.splitlines())


LOOP = loop("serial(1, 64, 1)", trip("k * 64", "k % 2"))
OF_N = LOOP.replace("64, 1)", "n, 1)")
ONCE = loop("serial(0, min(1, n), 1)", LOAD.format(row="k * 64", stage="k % 2"))


def made(body: str) -> str:
    """What the rule makes of statements behind `HEAD`; nothing where it leaves them."""
    kernel = parse_kernel(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    found = format_kernel(JoinFirstTrips().apply(kernel, parse_target("sm_90a")))
    return "" if found == format_kernel(kernel) else found


@pytest.mark.parametrize(
    ("body", "clear"),
    [
        (trip("0", "0", "True") + LOOP, "k == 0"),
        (trip("0", "0") + LOOP, "False"),
        (trip("0", "0", "True") + loop("pipelined(1, 64, num_stages=2)", trip("k * 64", "k % 2")), "k == 0"),
        (ONCE + PRODUCT.format(stage="0", clear="True", sum="acc") + OF_N, "k == 0"),
        (trip("192", "1", "True") + loop("serial(4, 64, 1)", trip("k * 64", "k % 2")), "k == 3"),
    ],
    ids=["cleared", "added", "pipelined", "loaded where there is one", "from another trip on"],
)
def test_a_first_trip_in_front_is_one_of_the_loop(body, clear):
    text = made(body)
    assert text.count("gemm(") == text.count("copy(") == 1
    assert f"clear={clear}" in text


def test_names_of_the_loop_stay():
    body = loop("serial(1, 64, 1)", "at = k % 2\n" + trip("k * 64", "at"))
    assert "for k in serial(0, 64, 1):\n        at = k % 2\n" in made(trip("0", "0", "True") + body)


@pytest.mark.parametrize(
    "body",
    [
        trip("64", "0", "True") + LOOP,
        trip("0", "1", "True") + LOOP,
        trip("0", "0", "True", "part") + LOOP,
        trip("0", "0", "True") + loop("serial(2, n, 1)", trip("k * 64", "k % 2")),
        trip("0", "0", "True") + loop("serial(1, n, 2)", trip("k * 64", "k % 2")),
        trip("0", "0", "False") + loop("serial(1, 64, 1)", trip("k * 64", "k % 2", "True")),
        trip("0", "0", "True") + "fill(acc[0:+64, 0:+64], 0.0)\n" + LOOP,
        loop("serial(0, min(2, n), 1)", LOAD.format(row="k * 64", stage="k % 2"))
        + PRODUCT.format(stage="0", clear="True", sum="acc")
        + OF_N,
        trip("0", "0", "True") + OF_N,
        trip("0", "0", "True") + "at = Z[0, 0]\n" + LOOP,
        LOOP,
    ],
    ids=[
        "row",
        "stage",
        "sum",
        "trip",
        "step",
        "clears",
        "statement",
        "two loads",
        "no trip",
        "name",
        "none",
    ],
)
def test_other_statements_stay_in_front(body):
    assert made(body) == ""
