"""Text of kernels and expressions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from ir_samples import (
    F32,
    SAMPLES,
    buffer,
    f32,
    fragment,
    i32,
    launch,
    load,
    region,
    scale_kernel,
    store,
    var,
)
from tvm import tirx
from tvm.ir import Expr, Var

from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.hints import Hints
from tilec.ir.layout import Digit, Layout
from tilec.ir.stmt import Defines
from tilec.ir.text import printer
from tilec.ir.text.expr_printer import format_expr


@pytest.mark.parametrize("name", SAMPLES)
def test_kernel_text(name, golden):
    golden(printer.format_kernel(SAMPLES[name]()))


def test_precedence_needs_few_brackets():
    a, b, c = var("a"), var("b"), var("c")
    assert format_expr((a + b) * c - (a - (b - c))) == "(a + b) * c - (a - (b - c))"
    assert format_expr(tirx.Not(tirx.And(tirx.LT(a, b), tirx.EQ(b, c)))) == "not (a < b and b == c)"
    assert format_expr(tirx.truncdiv(a, b) + tirx.truncmod(a, b)) == "truncdiv(a, b) + truncmod(a, b)"


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (tirx.const(0.1, F32), "0.1"),
        (tirx.const(-0.0, F32), "-0.0"),
        (tirx.const(float("-inf"), F32), 'float32("-inf")'),
        (tirx.const(float("nan"), "float16"), 'float16("nan")'),
        (tirx.const(3, "int64"), "int64(3)"),
        (tirx.const(True, "bool"), "True"),
        (tirx.isnan(var("x", F32)), "isnan(x)"),
        (tirx.reinterpret("int32", var("x", F32)), "reinterpret(int32, x)"),
        (tirx.call_pure_extern("float32", "f", var("i")), 'call(float32, "tirx.call_pure_extern", "f", i)'),
    ],
)
def test_constants_and_calls(expr, text):
    assert format_expr(expr) == text


def test_equal_names_are_numbered():
    assert format_expr(var("i") + var("i") * var("i_1")) == "i + i_1 * i_1_1"


def test_words_of_the_text_are_no_names():
    assert format_expr(var("lambda") + var("copy") + var("int32")) == "lambda_1 + copy_1 + int32_1"
    assert format_expr(var("float32_sum") + var("float8") + var("int4")) == "vfloat32_sum + vfloat8 + int4_1"


@dataclass(frozen=True, eq=False)
class Widget(ir.Stmt):
    """A node that no writer knows."""

    where: ir.Region
    size: Expr
    guard: Guard
    body: ir.Block


def _kernel_with(stmt):
    kernel = scale_kernel()
    return ir.Kernel("k", kernel.params, kernel.dims, (launch([1], [var("bx")], stmt),))


def test_unknown_nodes_print_their_fields(golden):
    t = fragment("t", (4,))
    inner = ir.Fill(region(t), f32(1.0))
    golden(printer.format_kernel(_kernel_with(Widget(region(t), i32(3) * var("k"), Guard(div=2), (inner,)))))


@dataclass(frozen=True, eq=False)
class Gadget(ir.Stmt):
    """A node that says how it is written."""

    syntax = "gad(where, *sizes, spare=)"

    where: ir.Region
    sizes: tuple[int | Expr, ...]
    name: Defines[Var]
    flag: bool
    spare: Expr | None = None


def test_a_class_says_how_it_is_written():
    gadget = Gadget(region(fragment("t", (4,))), (4, tirx.Add(i32(4), var("k"))), var("g", "int64"), True)
    text = printer.format_kernel(_kernel_with(gadget))
    assert "    g = gad(t[0:+4], 4, 4 + k, flag=True, dtypes=(int64,))\n" in text


def test_text_does_not_depend_on_the_process():
    assert printer.format_kernel(scale_kernel()) == printer.format_kernel(scale_kernel())


def test_hints_print_what_is_asked():
    t, g = fragment("t", (4,)), buffer("g", (4,))
    hints = Hints(coalesced_width=4, loop_layout=Layout(((Digit(4, 1, "lane"),),)))
    text = printer.format_kernel(_kernel_with(ir.Copy(region(g), region(t), hints)))
    assert 'hints={"coalesced_width": 4, "loop_layout": "4:1@lane"})' in text


def test_element_store_has_indices():
    g, k = buffer("g", (4, 4)), var("k")
    assert "    g[k, 1] = g[1, k]\n" in printer.format_kernel(_kernel_with(store(g, (k, 1), load(g, 1, k))))
