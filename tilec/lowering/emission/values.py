"""Tile IR expressions as TIR: element reads with bounds, compute types, one value per vector lane."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.dtypes import FLOAT_FORMATS
from tilec.errors import UnsupportedError
from tilec.ir.analysis.numbers.ranges import SHORT, as_passes_have_it, bounds, cut
from tilec.ir.exprs import BINARY, COMPARE, DIVISIONS, LOGIC, dtype_of, int_value, lane_of, same, scalar_dtype
from tilec.ir.foreign import ADDRESS, parts
from tilec.ir.interp.values import held
from tilec.lowering.emission.divisions import division
from tilec.lowering.emission.storage import compute_type, convert, is_nan, narrowed, stored_type
from tilec.lowering.math.vectors import (
    Vectors,
    lanes_of,
    literal,
    reinterpreted,
    spread,
    with_lanes,
    without_range,
)

#: Arithmetic and signed integers that compilers take for those of whole numbers.
_SUMS: dict[type, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
}
#: Operations whose result may be beyond the type of their operands.
_BEYOND = {**_SUMS, tirx.LShift: operator.lshift}
_WIDE = ("int32", "int64")
#: Operations, beside comparisons, of whose operands they conclude something.
_FOLDED = (tirx.Max, tirx.Min, tirx.RShift)

if TYPE_CHECKING:
    from tvm.ir import Call, Expr

    from tilec.lowering.emission.context import Context


def lower_value(expr: Expr, ctx: Context) -> Expr:
    """The TIR of ``expr``: its compute type, as many lanes as its value varies over."""
    kind = type(expr)
    if kind in COMPARE:
        return _compare(expr, ctx)
    if kind in LOGIC:
        return kind(*pair(expr.a, expr.b, ctx))
    if kind in BINARY:
        return _binary(expr, ctx)
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise UnsupportedError(
            f"expressions of kind {kind.__name__} have no {ctx.processor} code", why=str(expr)
        )
    return handler(expr, ctx)


def pair(a: Expr, b: Expr, ctx: Context) -> tuple[Expr, Expr]:
    """The values of two expressions, each with the lanes of the wider one."""
    left, right = lower_value(a, ctx), lower_value(b, ctx)
    lanes = max(lanes_of(left), lanes_of(right))
    return spread(left, lanes), spread(right, lanes)


def _compare(expr: Expr, ctx: Context) -> Expr:
    with ctx.folding():
        left, right = pair(expr.a, expr.b, ctx)
    if dtype_of(left).startswith("bool"):  # LLVM code generation has comparisons of numbers alone
        return type(expr)(convert(left, "int32"), convert(right, "int32"))
    if type(expr) in (tirx.EQ, tirx.NE) and dtype_of(left).startswith("float") and same(left, right):
        return is_nan(left) if type(expr) is tirx.NE else tirx.Not(is_nan(left))
    v = Vectors(left)
    left, right = v.name_long(left), v.name_long(right)
    return v.close(type(expr)(left, right))


def _binary(expr: Expr, ctx: Context) -> Expr:
    kind = type(expr)
    faster = ctx.faster(expr)
    if faster is not None:
        return faster
    with ctx.folding() if kind in _FOLDED or _is_part(expr) else nullcontext():
        left, right = pair(expr.a, expr.b, ctx)
    if kind in (tirx.Max, tirx.Min) and dtype_of(left).startswith("float"):
        return _extreme(expr, left, right, ctx)
    folded = wrapped(kind, left, right)
    if folded is not None:
        return folded
    if kind in DIVISIONS and not dtype_of(left).startswith("float"):
        return division(expr, left, right, ctx)
    if kind in _SUMS and scalar_dtype(left) in _WIDE and ctx.wraps(expr):
        return ctx.wrapping(kind, left, right)
    return ctx.combined(kind, left, right)


def wrapped(kind: type, left: Expr, right: Expr) -> Expr | None:
    """A sum, a difference, a product or a shift of two integer literals that is beyond their type, of which
    TVM has no number, wrapped around; None for anything else."""
    a, b = (int_value(lane_of(side)) for side in (left, right))
    if kind not in _BEYOND or a is None or b is None or (kind is tirx.LShift and b < 0):
        return None
    number, dtype = _BEYOND[kind](a, b), scalar_dtype(left)
    return None if cut(number, dtype) == number else literal(cut(number, dtype), dtype, lanes_of(left))


def _is_part(expr: Expr) -> bool:
    """Whether an expression is the quotient or the remainder of a product."""
    return isinstance(expr, DIVISIONS) and isinstance(expr.a, tirx.Mul)


def _extreme(expr: Expr, left: Expr, right: Expr, ctx: Context) -> Expr:
    """max or min that gives the operand that is a number. The machine's instruction gives the second operand
    when either is NaN, so only a second operand that may be NaN costs a test."""
    kind = type(expr)
    if ctx.is_number(expr.b):
        return kind(left, right)
    return kind(right, left) if ctx.is_number(expr.a) else ctx.number_of(kind, left, right)


def _integer(expr: Expr, ctx: Context) -> Expr:
    return expr


def _float(expr: Expr, ctx: Context) -> Expr:
    dtype = dtype_of(expr)
    return expr if compute_type(dtype) == dtype else tirx.const(float(expr.value), compute_type(dtype))


def _cast(expr: Expr, ctx: Context) -> Expr:
    with ctx.folding() if "int64" in dtype_of(expr) else nullcontext():
        value, dtype = lower_value(expr.value, ctx), dtype_of(expr)
    if compute_type(dtype) != dtype and dtype_of(value).startswith("float64"):
        if isinstance(value, tirx.FloatImm):
            return tirx.const(held(float(value.value), dtype), compute_type(dtype))
        return ctx.rounded(narrowed(value), dtype)
    made = ctx.as_float(expr.value, value) if compute_type(dtype) == "float32" else convert(value, dtype)
    made = as_passes_have_it(made, ctx.facts.inline(expr.value), ctx.facts.analyzer)
    return made if _has_all(dtype, expr.value, ctx) else ctx.rounded(made, dtype)


def _has_all(dtype: str, expr: Expr, ctx: Context) -> bool:
    """Whether a float type has every value that an expression may have, so that nothing is rounded."""
    form, source = FLOAT_FORMATS.get(dtype), scalar_dtype(expr)
    if form is None or source not in FLOAT_FORMATS:
        most = 0 if form is None else 2 << form.mantissa
        return source in SHORT and all(abs(end) <= most for end in bounds(expr, ctx.facts.analyzer))
    given = FLOAT_FORMATS[source]
    return given.exponent <= form.exponent and given.mantissa <= form.mantissa


def _not(expr: Expr, ctx: Context) -> Expr:
    return type(expr)(lower_value(expr.a, ctx))


def _inverted(expr: Expr, ctx: Context) -> Expr:
    return ctx.inverted(lower_value(expr.a, ctx))


def _select(expr: Expr, ctx: Context) -> Expr:
    verdict = ctx.facts.prove(expr.condition)
    if verdict is not None:
        return lower_value(expr.true_value if verdict else expr.false_value, ctx)
    return blend(lower_value(expr.condition, ctx), *pair(expr.true_value, expr.false_value, ctx))


def blend(cond: Expr, true: Expr, false: Expr) -> Expr:
    """``true`` in the lanes where ``cond`` holds, ``false`` in the others; all of them are values."""
    lanes = max(lanes_of(cond), lanes_of(true))
    if lanes_of(cond) > 1:
        true, false = spread(true, lanes), spread(false, lanes)
    v = Vectors(cond)
    return v.close(tirx.Select(v.opened(cond), true, false))


def _if_then_else(expr: Call, ctx: Context) -> Expr:
    """Evaluates only the side that is taken, or both where that is safe."""
    cond, true, false = expr.args
    verdict = ctx.facts.prove(cond)
    if verdict is None:
        return ctx.choice(cond, true, false)
    with ctx.facts.assume(cond, verdict):
        return lower_value(true if verdict else false, ctx)


def lazy_choice(cond: Expr, condition: Expr, true: Expr, false: Expr, ctx: Context) -> Expr:
    """A choice that evaluates only the side that is taken; ``condition`` is the value of ``cond``."""
    with ctx.facts.assume(cond):
        taken = lower_value(true, ctx)
    with ctx.facts.assume(cond, False):
        other = lower_value(false, ctx)
    lanes = max(lanes_of(taken), lanes_of(other))
    v = Vectors(condition)
    return v.close(tirx.if_then_else(v.opened(condition), spread(taken, lanes), spread(other, lanes)))


def _let(expr: Expr, ctx: Context) -> Expr:
    value = lower_value(expr.value, ctx)
    with ctx.scope():
        var = ctx.define(expr.var, value)
        return tirx.Let(var, without_range(value), lower_value(expr.body, ctx))


def _reinterpret(expr: Call, ctx: Context) -> Expr:
    source, dtype = dtype_of(expr.args[0]), dtype_of(expr)
    bits = ctx.stored(expr.args[0], source)
    stored = dtype if dtype == "bool" else stored_type(dtype)
    return ctx.decode(reinterpreted(with_lanes(stored, lanes_of(bits)), bits), dtype)


def _call(expr: Call, ctx: Context) -> Expr:
    name = getattr(expr.op, "name", "")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(expr, ctx)
    if not name.startswith(("tirx.", "prim.")):
        raise UnsupportedError(f"the call {name or expr.op} has no {ctx.processor} code", why=str(expr))
    args = [lower_value(arg, ctx) for arg in expr.args]
    own = ctx.function(name.partition(".")[2], args)
    if own is not None:
        return own
    lanes = max((lanes_of(arg) for arg in args), default=1)
    ret_type = tvm_ir.PrimType(with_lanes(compute_type(dtype_of(expr)), lanes))
    return tvm_ir.Call(expr.op, [spread(arg, lanes) for arg in args], ret_ty=ret_type)


def _named(expr: Call, ctx: Context) -> Expr:
    """A call by name: one of the language's functions."""
    name = str(expr.args[0].value)
    if name == ADDRESS:
        return ctx.pointer(expr.args[1])
    args = [lower_value(arg, ctx) for arg in expr.args[1:]]
    lanes = max((lanes_of(arg) for arg in args), default=1)
    made = ctx.named(name, dtype_of(expr), [spread(arg, lanes) for arg in args])
    if made is None:
        raise UnsupportedError(f"the function {name} has no {ctx.processor} code", why=str(expr))
    return made


_SPECIAL: dict[str, Callable[[Call, Context], Expr]] = {
    "tirx.call_extern": lambda expr, ctx: ctx.foreign(*parts(expr)),
    "tirx.call_pure_extern": _named,
    "prim.if_then_else": _if_then_else,
    "tirx.if_then_else": _if_then_else,
    "tirx.reinterpret": _reinterpret,
    "prim.reinterpret": _reinterpret,
    "tirx.isnan": lambda expr, ctx: is_nan(lower_value(expr.args[0], ctx)),
    "tirx.likely": lambda expr, ctx: lower_value(expr.args[0], ctx),
    "prim.likely": lambda expr, ctx: lower_value(expr.args[0], ctx),
}

_HANDLERS: dict[type, Callable[[Expr, Context], Expr]] = {
    tvm_ir.Var: lambda expr, ctx: ctx.variable(expr),
    tirx.IntImm: _integer,
    tirx.FloatImm: _float,
    tirx.Cast: _cast,
    tirx.Not: _not,
    tirx.BitwiseNot: _inverted,
    tirx.Select: _select,
    tirx.Let: _let,
    tvm_ir.Call: _call,
    tvm_ir.TensorLoad: lambda expr, ctx: ctx.load(expr),
}
