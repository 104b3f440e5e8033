"""Which launches without a strategy walk over their tiles, block by block."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.statement_roles.split.split_roles import SplitRoles
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

KERNEL = """
kernel("small")
X = tensor(float16, (256, 128), ("256", "128"), access="in")
Y = tensor(float16, (256, 128), ("256", "128"), access="in")
Z = tensor(float32, (256, 256), ("256", "256"), access="out")
with launch(4, 2, threads=(256, 1, 1)) as (bx, by):
    a = alloc(float16, (128, 64), "shared.dyn")
    b = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (128, 64), "local.fragment")
    fill(acc[0:+128, 0:+64], 0.0)
    for k in pipelined(0, 2, num_stages=2):
        copy(X[by * 128:+128, k * 64:+64], a[0:+128, 0:+64])
        copy(Y[bx * 64:+64, k * 64:+64], b[0:+64, 0:+64])
        gemm(a[0:+128, 0:+64], b[0:+64, 0:+64], acc[0:+128, 0:+64], trans_b=True, clear=False)
{}    copy(acc[0:+128, 0:+64], Z[by * 128:+128, bx * 64:+64])
"""
ELEMENTS = """for i, j in parallel(128, 64):
            acc[i, j] = acc[i, j] * 2.0
"""
PRODUCT = "gemm(a[0:+128, 0:+64], b[0:+64, 0:+64], acc[0:+128, 0:+64], trans_b=True, clear=False)\n"


@pytest.mark.parametrize(
    ("inside", "walks"), [(ELEMENTS, True), (f"for n in serial(0, bx, 1):\n            {PRODUCT}", False)]
)
def test_a_branch_over_elements_takes_no_longer(inside: str, walks: bool):
    kernel = parse_kernel(KERNEL.format(f"    if bx < 2:\n        {inside}"))
    found = format_kernel(SplitRoles().apply(kernel, parse_target("sm_90a")))
    assert "thread_group" in found or not walks
    assert ("each_tile(" in found) == walks


HANDED = """
kernel("handed")
X = tensor(float16, (128, 128), ("128", "128"), access="in")
Y = tensor(float16, (128, 128), ("128", "128"), access="in")
Z = tensor(float32, (128, 128), ("128", "128"), access="out")
with launch(2, 2, threads=(128, 1, 1)) as (bx, by):
    a = alloc(float16, (64, 64), "shared.dyn")
    b = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    come = alloc_barriers((128,))
    fill(acc[0:+64, 0:+64], 0.0)
    for k in pipelined(0, 2, num_stages=2):
        copy(X[by * 64:+64, k * 64:+64], a[0:+64, 0:+64])
        copy(Y[bx * 64:+64, k * 64:+64], b[0:+64, 0:+64])
        gemm(a[0:+64, 0:+64], b[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=False)
{}    copy(acc[0:+64, 0:+64], Z[by * 64:+64, bx * 64:+64])
"""
MET = "barrier_arrive(come[0])\n{0}barrier_wait(come[0], 0)\n"


@pytest.mark.parametrize(
    ("indent", "has_roles"), [("    ", True), ("        ", False)], ids=["behind", "inside"]
)
def test_barriers_behind_loops_are_for_those_who_compute(indent: str, has_roles: bool):
    kernel = parse_kernel(HANDED.format(indent + MET.format(indent)))
    found = format_kernel(SplitRoles().apply(kernel, parse_target("sm_90a")))
    assert ("thread_group(" in found) == has_roles
    assert "each_tile(" not in found
