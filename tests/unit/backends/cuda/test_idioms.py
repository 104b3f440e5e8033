"""What the rules for idioms leave alone: each condition of a rule, broken."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.forward_passages import ForwardPassages
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """
kernel("small")
X = tensor(float32, (64, 64), ("64", "64"), access="in")
Y = tensor(float16, (64, 64), ("64", "64"), access="inout")
Z = tensor(float16, (64, 64), ("64", "64"), access="out")
n = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    tile = alloc(float16, (64, 64), "shared.dyn")
    half = alloc(float16, (64,), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    for i, j in parallel(64, 64):
        acc[i, j] = X[i, j] * 2.0
"""
OUT = "copy(acc[0:+64, 0:+64], tile[0:+64, 0:+64])\n"
IN = "copy(tile[0:+64, 0:+64], Z[0:+64, 0:+64])\n"
LOAD = "copy(Y[0:+64, 0:+64], tile[0:+64, 0:+64])\n"


def made(rule, body: str) -> str:
    """What a rule makes of statements behind those of `HEAD`; nothing where it leaves them."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel = parse_kernel(HEAD + lines)
    found = format_kernel(rule.apply(kernel, SM90A))
    return "" if found == format_kernel(kernel) else found


@pytest.mark.parametrize(
    "body",
    [
        OUT + IN,
        "if n > 3:\n    " + OUT + "    " + IN,
        OUT
        + "if n > 3:\n    "
        + IN
        + "else:\n    for i, j in parallel(64, 64):\n        Y[i, j] = tile[i, j]\n",
        "for k in serial(0, n, 1):\n    " + OUT + "    " + IN,
        OUT + "for i, j in parallel(32, 64):\n    Z[i, j] = tile[i + 32, j]\n",
        OUT + IN + LOAD + IN,
        LOAD + "for i, j in parallel(64, 64):\n    Y[i, j] = tile[i, j]\n",
    ],
    ids=["straight", "in a branch", "read in branches", "in a loop", "a part", "another life", "in place"],
)
def test_a_tile_that_values_pass_through_is_not_written(body):
    assert OUT.split("\n")[0] not in made(ForwardPassages(), body) != ""


@pytest.mark.parametrize(
    "body",
    [
        OUT + "for i, j in parallel(64, 64):\n    acc[i, j] = 0.0\n" + IN,
        OUT + "for i, j in parallel(64, 64):\n    Z[i, j] = tile[i + 1, j]\n",
        "if n > 3:\n    " + OUT + IN,
        "for k in serial(0, n, 1):\n    " + IN + "    " + OUT,
        "copy(acc[0:+32, 0:+64], tile[0:+32, 0:+64])\n" + IN,
        OUT + "if n > 3:\n    fill(tile[0:+64, 0:+64], cast(float16, 1))\n" + IN,
        OUT + IN + "gemm(tile[0:+64, 0:+64], tile[0:+64, 0:+64], acc[0:+64, 0:+64], clear=True)\n",
        LOAD + "for i, j in parallel(64, 64):\n    Y[j, i] = tile[i, j]\n",
        "for i, j in parallel(64, 64):\n    half[i] = cast(float16, acc[i, j])\n"
        "for i, j in parallel(64, 64):\n    Z[i, j] = half[i]\n",
        OUT,
    ],
    ids=[
        "its source changes",
        "read outside",
        "written in a branch",
        "read in the next trip",
        "a part is written",
        "overwritten in a branch",
        "multiplied",
        "in place, elsewhere",
        "one element of many",
        "never read",
    ],
)
def test_a_tile_that_others_see_stays(body):
    assert made(ForwardPassages(), body) == ""
