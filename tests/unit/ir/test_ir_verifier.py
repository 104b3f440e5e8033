"""Rules of the tile IR: good kernels pass, each broken rule is named."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from ir_samples import (
    FALSE,
    I32,
    SAMPLES,
    buffer,
    f32,
    fragment,
    i32,
    launch,
    loop,
    region,
    scale_kernel,
    shared,
    store,
    var,
)
from tvm.ir import Expr, Var

from tilec.backends.cuda.nodes import ThreadLoop
from tilec.errors import IRError
from tilec.ir import nodes as ir
from tilec.ir.layout import Layout
from tilec.ir.rules.verifier import verify
from tilec.ir.stmt import Defines


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_valid(name):
    verify(SAMPLES[name]())


X, T, U = buffer("X", (8, 8)), fragment("T", (8, 8)), fragment("U", (8,))
BX, K, V = var("bx"), var("k"), var("v")


def _kernel(*body):
    scale = scale_kernel()
    param = ir.TensorParam("X", X, ("8", "8"), None, "inout")
    return ir.Kernel("k", (param,), scale.dims, (launch([1], [BX], ir.Alloc(T), ir.Alloc(U), *body),))


def _fill(stmt_region, value=None):
    return ir.Fill(stmt_region, f32(0.0) if value is None else value)


BROKEN = {
    "before": (_fill(region(shared("S", (4,)))), "S is used before"),
    "twice": (ir.Alloc(T), "T is defined twice"),
    "bind twice": (loop(BX, 3), "bx is defined twice"),
    "outside": (store(U, V, f32(0.0)), "v is used before or outside of its definition"),
    "rank": (store(U, (0, 0), f32(0.0)), "U has rank 1, got 2 indices"),
    "store dtype": (store(U, 0, i32(0)), "U is float32, its value 0 is int32"),
    "bind dtype": (ir.Bind(V, f32(1.0)), "v is int32, its value 1.0 is float32"),
    "fill dtype": (_fill(region(U), i32(0)), "U is float32"),
    "index dtype": (ir.Store(U, (f32(0.0),), f32(0.0)), "0.0 is no integer"),
    "condition": (ir.If(i32(1), ()), "1 is no condition: int32"),
    "region": (_fill(region(U, (4, 8))), r"axis 0 of U: \[4, 12\) lies outside of \[0, 8\)"),
    "region rank": (ir.Fill(ir.Region(T, (i32(0), i32(0)), (8,)), f32(0.0)), "a region of T has 1 extents"),
    "copy": (ir.Copy(region(X, (0, 8), (0, 4)), region(T)), r"copy of extents \(8, 4\) to \(8, 8\)"),
    "gemm": (ir.Gemm(region(T), region(T, (0, 4), (0, 8)), region(T), False, False, FALSE), "axis K is 8"),
    "gemm rank": (ir.Gemm(region(U), region(T), region(T), False, False, FALSE), "gemm operand U has rank 1"),
    "gemm clear": (ir.Gemm(region(T), region(T), region(T), False, False, i32(0)), "0 is no condition"),
    "reduce": (
        ir.Reduce("sum", region(T), region(U, (0, 4)), 1, True),
        r"reduction of \(8, 8\) along axis 1",
    ),
    "reduce kind": (ir.Reduce("mean", region(T), region(U), 1, True), "reduction 'mean'"),
    "reduce axis": (ir.Reduce("sum", region(T), region(U), 2, True), "axis 2 of a region of rank 2"),
    "scan": (ir.Scan("sum", region(T), region(T, (0, 4), (0, 8)), 0), r"scan of \(8, 8\) to \(4, 8\)"),
    "scan kind": (ir.Scan("mean", region(T), region(T), 0), "scan 'mean'"),
    "scan axis": (ir.Scan("sum", region(U), region(U), 1), "axis 1 of a region of rank 1"),
    "atomic kind": (ir.Atomic("sub", U, (i32(0),), f32(1.0)), "atomic 'sub'"),
    "atomic order": (ir.Atomic("add", U, (i32(0),), f32(1.0), None, "soon"), "memory order 'soon'"),
    "atomic rank": (ir.Atomic("add", T, (i32(0),), f32(1.0)), "T has rank 2, got 1 index"),
    "atomic dtype": (ir.Atomic("add", U, (i32(0),), i32(1)), "U is float32, its value 1 is int32"),
    "atomic old value": (
        ir.Atomic("add", U, (i32(0),), f32(1.0), V),
        "v is int32, the element before is float32",
    ),
    "break": (ir.Break(), "break outside of a sequential loop"),
    "break in parallel": (loop(K, 2, ir.Parallel((V,), (4,), (ir.Break(),))), "break outside"),
    "continue": (ir.Continue(), "continue outside of a loop"),
    "loop kind": (loop(K, 2, kind="swirl"), "loop kind 'swirl'"),
    "step": (ir.For("serial", K, i32(0), i32(4), i32(0), ()), "a loop of step 0"),
    "parallel": (ir.Parallel((K, V), (4,), ()), "one extent per variable"),
    "scope": (ir.Alloc(buffer("S", (4,), scope="global")), "S is allocated in scope 'global'"),
    "workspace inside": (ir.Alloc(buffer("W", (4,), scope="global.workspace")), "allocated inside a launch"),
    "run-time shape": (ir.Alloc(shared("S", (BX,))), "S has a run-time shape"),
    "local.var": (ir.Alloc(buffer("S", (2,), I32, "local.var")), "local.var of more than one element"),
    "nested launch": (launch([1], [V]), "a launch stands inside"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_named(name):
    stmt, words = BROKEN[name]
    with pytest.raises(IRError, match=words):
        verify(_kernel(stmt))


def test_names_end_with_their_region():
    body = loop(K, 2, ir.Bind(V, K + 1))
    verify(_kernel(body))
    with pytest.raises(IRError, match="v is used before or outside"):
        verify(_kernel(body, store(U, V, f32(0.0))))
    with pytest.raises(IRError, match="k is used before or outside"):
        verify(_kernel(body, store(U, K, f32(0.0))))


def test_siblings_may_share_a_variable():
    verify(_kernel(loop(K, 2), loop(K, 3)))


def test_statements_outside_of_launches():
    kernel = scale_kernel()
    with pytest.raises(IRError, match="Fill stands outside of a launch"):
        verify(ir.Kernel("k", kernel.params, kernel.dims, (_fill(region(kernel.params[0].buffer)),)))
    with pytest.raises(IRError, match=r"shared\.dyn is allocated outside of a launch"):
        verify(ir.Kernel("k", kernel.params, kernel.dims, (ir.Alloc(shared("S", (4,))),)))


def test_grid_needs_a_variable_per_dimension():
    scale = scale_kernel()
    kernel = ir.Kernel("k", scale.params, scale.dims, (launch([1, 2], [var("bx")]),))
    with pytest.raises(IRError, match="one block variable per grid dimension"):
        verify(kernel)


def test_errors_carry_the_line_of_the_author():
    stmt = ir.Store(U, (i32(0),), i32(0), loc=ir.Loc("kernels/scale.py", 17))
    with pytest.raises(IRError) as caught:
        verify(_kernel(stmt))
    assert str(caught.value.place) == "kernels/scale.py:17: kernel k"


@dataclass(frozen=True, eq=False)
class Lowered(ir.Stmt):
    """A node that lowering would add."""

    src: ir.Region
    rows: Expr
    vars: Defines[tuple[Var, ...]]
    body: ir.Block


def test_lowered_nodes_are_checked_field_by_field():
    inner = store(U, K, f32(1.0))
    verify(_kernel(Lowered(region(T), BX * 2, (K,), (inner,))))
    with pytest.raises(IRError, match="v is used before"):
        verify(_kernel(Lowered(region(T), V * 2, (K,), (inner,))))
    with pytest.raises(IRError, match="S is used before"):
        verify(_kernel(Lowered(region(shared("S", (4,))), BX * 2, (K,), (inner,))))
    with pytest.raises(IRError, match="k is used before"):
        verify(_kernel(Lowered(region(T), BX * 2, (), (inner,))))


@pytest.mark.parametrize(
    ("extents", "places", "vector", "words"),
    [
        ((8, 8), (8, 8), 1, "ThreadLoop of 1 variables"),
        ((8,), (8, 8), 1, r"ThreadLoop of 1 variables, extents \(8,\) and a layout of \(8, 8\)"),
        ((9,), (8,), 1, r"extents \(9,\) has places for \(8,\)"),
        ((0,), (8,), 1, r"extents \(0,\) has places for \(8,\)"),
        ((8,), (8,), 0, "vectors of 0 iterations"),
    ],
)
def test_loops_of_threads_have_a_place_for_each_iteration(extents, places, vector, words):
    body = (store(U, K, f32(1.0)),)
    layout = Layout.row_major(places)
    verify(_kernel(ThreadLoop((K,), (6,), Layout.row_major((8,)), body)))
    with pytest.raises(IRError, match=words):
        verify(_kernel(ThreadLoop((K,), extents, layout, body, vector)))
