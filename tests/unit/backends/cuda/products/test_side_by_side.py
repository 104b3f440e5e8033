"""Products of one first operand are one instruction where their other operands can lie side by side."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.nodes import SideBySide
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Launch, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """kernel("kernel")
A = tensor({dtype}, (128, 256), ("128", "256"), access="in")
B = tensor({dtype}, (256, 256), ("256", "256"), access="in")
C = tensor(float32, (2, 128, 256), ("2", "128", "256"), access="out")
with launch(1, threads=(256, 1, 1)) as (bx,):
    A_s = alloc({dtype}, (128, {depth}), "shared.dyn")
    one_s = alloc({dtype}, ({rows}, {columns}), "shared.dyn")
    two_s = alloc({dtype}, ({rows}, {columns}), "shared.dyn")
    one = alloc(float32, (128, {n}), "local.fragment")
    two = alloc(float32, (128, {n}), "local.fragment")
    fill(one[0:+128, 0:+{n}], 1.0)
    fill(two[0:+128, 0:+{n}], 1.0)
    for k in pipelined(0, 2, num_stages=2):
{loop}
    copy(one[0:+128, 0:+{n}], C[0:+1, 0:+128, 0:+{n}])
    copy(two[0:+128, 0:+{n}], C[1:+1, 0:+128, 0:+{n}])
"""
LOADS = (
    "copy(A[0:+128, k * {depth}:+{depth}], A_s[0:+128, 0:+{depth}])",
    "copy(B[{first}:+{rows}, {left}:+{columns}], one_s[0:+{rows}, 0:+{columns}])",
    "copy(B[{second}:+{rows}, {right}:+{columns}], two_s[0:+{rows}, 0:+{columns}])",
)
PRODUCT = (
    "gemm(A_s[0:+128, 0:+{depth}], {name}_s[0:+{rows}, 0:+{columns}], {name}[0:+128, 0:+{n}], "
    "trans_b={trans}, clear=False)"
)


def text(n=64, depth=64, trans=True, dtype="float16", between="", last=""):
    """Two products of one tile; ``between`` and ``last`` stand between them and behind them."""
    rows, columns = (n, depth) if trans else (depth, n)
    along = {"first": "0", "second": f"{n}", "left": f"k * {depth}", "right": f"k * {depth}"}
    across = {"first": f"k * {depth}", "second": f"k * {depth}", "left": "0", "right": f"{n}"}
    sizes = {"rows": rows, "columns": columns, "depth": depth, "n": n, "trans": trans, "dtype": dtype}
    sizes |= along if trans else across
    products = [PRODUCT.format(name=name, **sizes) for name in ("one", "two")]
    lines = [*(line.format(**sizes) for line in LOADS), products[0], between, products[1], last]
    return HEAD.format(loop="\n".join(f"        {line}" for line in lines if line), **sizes)


def made(kernel: str) -> Launch:
    return lower(parse_kernel(kernel), SM90A).launches[0]


@pytest.mark.parametrize(
    "kernel",
    [
        text(),
        text(n=128),
        text(trans=False),
        text(n=128, trans=False),
        text(depth=32),
        text(dtype="bfloat16"),
        text(depth=128, dtype="float8_e4m3fn"),
    ],
    ids=["along", "wide", "across", "wide across", "short rows", "bfloat16", "float8"],
)
def test_products_of_one_operand_are_one(kernel):
    launch = made(kernel)
    (found,) = [stmt for stmt in walk(launch.body) if isinstance(stmt, SideBySide)]
    assert len(found.body) == 2
    assert any("issued as one" in note for note in launch.notes)


@pytest.mark.parametrize(
    "kernel",
    [
        text(n=136),
        text(depth=128),
        text(n=32, trans=False),
        text(between="fill(two[0:+128, 0:+64], 0.0)"),
        text(last="copy(two_s[0:+64, 0:+64], C[0:+1, 0:+64, 64:+64])"),
        text().replace("trans_b=True, clear=False)\n    copy", "trans_b=True, clear=True)\n    copy"),
    ],
    ids=["too wide", "two slabs", "narrow across", "statement", "reader", "cleared"],
)
def test_others_are_issued_one_by_one(kernel):
    launch = made(kernel)
    assert not any(isinstance(stmt, SideBySide) for stmt in walk(launch.body))
    assert not any("issued as one" in note for note in launch.notes)
