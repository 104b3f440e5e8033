"""Products of a trip are issued as soon as what they read is there, and behind operands in registers."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.nodes import ProductsWait, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Copy, For, Gemm, Parallel, Stmt, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
TEXT = """kernel("kernel")
N = dim(int32, div=128)
Q = tensor(float16, (N, {width}), ("N", "{width}"), access="in")
O = tensor(float16, (N, {width}), ("N", "{width}"), access="in")
K = tensor(float16, (N, {width}), ("N", "{width}"), access="in")
lse = tensor(float32, (N,), ("N",), access="in")
dV = tensor(float32, (N, {width}), ("N", "{width}"), access="out")
dK = tensor(float32, (N, {width}), ("N", "{width}"), access="out")
with launch(N // 128, threads=(256, 1, 1)) as (bx,):
    Ks = alloc(float16, (128, {width}), "shared.dyn")
    q = alloc(float16, (64, {width}), "shared.dyn")
    o = alloc(float16, (64, {width}), "shared.dyn")
    l = alloc(float32, (64,), "shared.dyn")
    s = alloc(float32, (128, 64), "local.fragment")
    d = alloc(float32, (128, 64), "local.fragment")
    p = alloc(float16, (128, 64), "local.fragment")
    ds = alloc(float16, (128, 64), "local.fragment")
    dv = alloc(float32, (128, {width}), "local.fragment")
    dk = alloc(float32, (128, {width}), "local.fragment")
    copy(K[bx * 128:+128, 0:+{width}], Ks[0:+128, 0:+{width}])
    fill(dv[0:+128, 0:+{width}], 0.0)
    fill(dk[0:+128, 0:+{width}], 0.0)
    for k in pipelined(0, N // 64, num_stages=2):
        copy(Q[k * 64:+64, 0:+{width}], q[0:+64, 0:+{width}])
        copy(lse[k * 64:+64], l[0:+64])
        gemm(Ks[0:+128, 0:+{width}], q[0:+64, 0:+{width}], s[0:+128, 0:+64], trans_b=True, clear=True)
        for i, j in parallel(128, 64):
            s[i, j] = exp2(s[i, j] - l[j])
        copy(O[k * 64:+64, 0:+{width}], o[0:+64, 0:+{width}])
        gemm(Ks[0:+128, 0:+{width}], o[0:+64, 0:+{width}], d[0:+128, 0:+64], trans_b=True, clear=True)
        copy(s[0:+128, 0:+64], p[0:+128, 0:+64])
        gemm(p[0:+128, 0:+64], o[0:+64, 0:+{width}], dv[0:+128, 0:+{width}], clear=False)
        for i, j in parallel(128, 64):
            ds[i, j] = cast(float16, s[i, j] * d[i, j])
        gemm(ds[0:+128, 0:+64], q[0:+64, 0:+{width}], dk[0:+128, 0:+{width}], clear=False)
    copy(dv[0:+128, 0:+{width}], dV[bx * 128:+128, 0:+{width}])
    copy(dk[0:+128, 0:+{width}], dK[bx * 128:+128, 0:+{width}])
"""


def trip(width: int, until: str) -> list[Stmt]:
    """The statements of a consumer's trip."""
    launch = lower(parse_kernel(TEXT.format(width=width)), SM90A, until=until).launches[0]
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group)]
    loops = [stmt for stmt in walk(groups[-1].body) if isinstance(stmt, For)]
    return list(loops[0].body)


@pytest.mark.parametrize("width", [64, 128])
def test_products_run_beside_arithmetic(width: int) -> None:
    """128 columns: not all fragments fit the registers of a thread, those that are alive at a time do."""
    kinds = [type(stmt) for stmt in trip(width, "issue_ahead") if isinstance(stmt, (Gemm, Parallel, Copy))]
    assert kinds == [Gemm, Gemm, Parallel, Copy, Parallel, Gemm, Gemm]


def test_nothing_is_under_way_behind_the_last_product_of_a_trip() -> None:
    """Both of the last products take registers that the trip writes."""
    stmts = trip(128, "place_product_waits")
    issued = [stmt for stmt in stmts if isinstance(stmt, (WarpgroupProduct, ProductsWait))]
    assert isinstance(issued[-1], ProductsWait)
    assert issued[-1].pending == 0
