"""Any expression survives printing and parsing, bracket for bracket."""

from __future__ import annotations

import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_samples import F32, I32, load, tensor, var
from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.text.expr_printer import format_expr
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

N, A = var("n"), var("a", F32)
X = tirx.decl_buffer([N, 4], F32, "x")
_INTEGERS = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Div,
    tirx.Mod,
    tirx.Min,
    tirx.Max,
)
_BITS = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
_FLOATS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_COMPARE = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


def _pairs(kinds, part):
    return st.builds(lambda kind, a, b: kind(a, b), st.sampled_from(kinds), part, part)


def _deeper(parts):
    integers, floats, conditions = parts
    cast = st.builds(lambda x: tirx.Cast(I32, x), floats)
    element = st.builds(lambda i, j: load(X, i, j), integers, integers)
    call = st.builds(
        lambda name, x: getattr(tirx, name)(x), st.sampled_from(["exp", "tanh", "floor"]), floats
    )
    choice = st.builds(tirx.if_then_else, conditions, floats, floats)
    either = st.builds(tirx.Select, conditions, integers, integers)
    return (
        _pairs(_INTEGERS + _BITS, integers) | st.builds(tirx.BitwiseNot, integers) | cast | either,
        _pairs(_FLOATS, floats) | element | call | choice,
        _pairs(_COMPARE, integers)
        | _pairs((tirx.And, tirx.Or), conditions)
        | st.builds(tirx.Not, conditions),
    )


def _expressions():
    floats = st.floats(width=32, allow_nan=False).map(lambda value: tirx.FloatImm(F32, value))
    parts = (
        st.integers(-(2**31), 2**31 - 1).map(lambda value: tirx.IntImm(I32, value)) | st.just(N),
        floats | st.just(A),
        st.booleans().map(lambda value: tirx.IntImm("bool", value)),
    )
    for _ in range(3):
        parts = tuple(old | new for old, new in zip(parts, _deeper(parts), strict=True))
    return st.one_of(*parts)


@settings(max_examples=100)
@given(_expressions())
def test_expressions_come_back_equal(expr):
    bound = ir.Bind(var("v", str(expr.ty.dtype)), expr)
    params = (tensor(X), ir.ScalarParam("a", A))
    kernel = ir.Kernel("k", params, (ir.Dim("n", N, Guard()),), (bound,))
    again = parse_kernel(format_kernel(kernel)).body[0].value
    assert tvm_ffi.structural_equal(expr, again, map_free_vars=True), format_expr(expr)
