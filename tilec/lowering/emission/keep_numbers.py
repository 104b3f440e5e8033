"""Values that TVM's simplifier gets wrong, hidden from it while passes of TVM run.

Its rules are those of whole numbers without end. Floats have NaN and infinities, integers of 32 bits and
fewer wrap around or have no such number at all. So comparisons, differences, products with zero and
bits of floats are kept from it, and of integers comparisons, differences, shifts to the left and casts:

    not x < y         is not    y <= x    where one of them is NaN
    x - x             is not    0         where x is infinite
    0 * x, 0 / x      is not    0         where x is infinite, or 0; nor where 0 is an integer's
    x / 0             is no number of TVM's, which fails on it
    reinterpret(0)    is not    a pointer to nothing
    0 < x             is not    0 - x < 0 where x is unsigned: TVM fails there on literals
    uint16(min(i, -4)) is not   uint16(-4), of which TVM has no number, nor of int8(16384)
    max(x, 7) << 30   is not    7 << 30 where 7 is the greatest x: nor of that, where it leaves the type
    int32(x * 0.5)    lies not  between whole numbers that x * 0.5 lies between

The passes that need this flatten indices: they assume the conditions of branches, and take the 5 of
``x + 5 < y`` to the other side. `hide_numbers` makes calls of such values, which nothing looks into, and
`show_numbers` turns them back. By `part_unequal` LLVM gets `!=` as the opposite of `==`: TVM's own `!=` of
two floats is false where one of them is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call, PrimType, StringImm

from tilec.ir.analysis.numbers.ranges import cut
from tilec.ir.exprs import dtype_of, int_value, lane_of, loads, scalar_dtype, uncast, walk
from tilec.lowering.emission.body_passes import body_pass
from tilec.lowering.emission.values import wrapped
from tilec.lowering.math.vectors import lanes_of, literal, reinterpreted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

_PREFIX = "tilec_numbers_"
_BITS, _CAST, _WHOLE = (f"{_PREFIX}{part}" for part in ("bits", "cast", "whole"))
_REINTERPRET = ("tirx.reinterpret", "prim.reinterpret")
_KINDS = {kind.__name__: kind for kind in (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Sub)}
_OF_ZERO = {kind.__name__: kind for kind in (tirx.Mul, tirx.Div)}
_KEPT = {**_KINDS, **_OF_ZERO, tirx.LShift.__name__: tirx.LShift}


def hide_numbers() -> Any:
    """The pass of functions of TVM in front of a simplifier."""
    arithmetic = [(kind, _hidden) for kind in _KINDS.values()]
    of_zero = [(kind, _hidden_zero) for kind in _OF_ZERO.values()]
    rest = [(Call, _hidden_bits), (tirx.Cast, _hidden_cast), (tirx.LShift, _kept_operation)]
    rewritten = [*arithmetic, *of_zero, *rest]
    return body_pass("HideNumbers", lambda _function: rewritten)


def without_whole_parts(passes: Sequence[Any]) -> list[Any]:
    """Passes of TVM that ask between which numbers names lie, as those that flatten buffers: they take
    what is cut off floats for a whole number, and fail, so it is hidden from them. What `hide_numbers` has
    hidden stays so."""
    hide = body_pass("HideWholeParts", lambda _function: [(tirx.Cast, _hidden_whole_part)])
    show = body_pass("ShowWholeParts", lambda _function: [(Call, _shown_whole_part)])
    return [hide, *passes, show]


def show_numbers() -> Any:
    """The pass behind those that hide."""
    return body_pass("ShowNumbers", lambda _function: [(Call, _shown)])


def part_unequal() -> Any:
    """The last pass: every `!=` of floats as LLVM is to have it."""
    return body_pass("PartUnequal", lambda _function: [(tirx.NE, _unequal)])


def _hidden(expr: Expr) -> Expr:
    if not dtype_of(expr.a).startswith(("float", "uint")):
        return expr
    return _kept_operation(expr)


def _hidden_zero(expr: Expr) -> Expr:
    """Where zero meets what is no number yet; most products are of indices."""
    if "float" not in dtype_of(expr):
        return expr
    a, b = (_float_value(side) for side in (expr.a, expr.b))
    unknown = (a == 0 and b is None) or (b == 0 and a is None)
    return _kept_operation(expr) if unknown or _may_divide_by_zero(expr) else expr


def _may_divide_by_zero(expr: Expr) -> bool:
    """Whether a divisor is a zero, or one is left of it where conditions are decided: TVM fails there."""
    return isinstance(expr, tirx.Div) and any(_float_value(node) == 0 for node in walk(expr.b))


def _float_value(expr: Expr) -> float | None:
    """The number that a literal has in all lanes, or a zero that is converted; None for anything else."""
    lane = lane_of(expr)
    if isinstance(lane, tirx.FloatImm):
        return float(lane.value)
    held = lane_of(uncast(lane))
    return 0.0 if isinstance(held, (tirx.IntImm, tirx.FloatImm)) and held.value == 0 else None


def _kept_operation(expr: Expr) -> Expr:
    return tirx.call_pure_extern(dtype_of(expr), _PREFIX + type(expr).__name__, expr.a, expr.b)


def _hidden_bits(call: Call) -> Expr:
    if getattr(call.op, "name", "") not in _REINTERPRET or not isinstance(call.ty, PrimType):
        return call
    if not dtype_of(call.args[0]).startswith(("int", "uint")):
        return call
    return tirx.call_pure_extern(dtype_of(call), _BITS, call.args[0])


def _hidden_cast(cast: tirx.Cast) -> Expr:
    """Of indices: what memory holds is no number that the simplifier knows."""
    small = dtype_of(cast).startswith(("uint", "int8", "int16"))
    if not (small and dtype_of(cast.value).startswith("int")) or next(loads(cast.value), None) is not None:
        return _hidden_whole_part(cast)
    return tirx.call_pure_extern(dtype_of(cast), _CAST, cast.value)


def _hidden_whole_part(cast: tirx.Cast) -> Expr:
    if "float" not in dtype_of(cast.value) or not scalar_dtype(cast).startswith(("int", "uint")):
        return cast
    return tirx.call_pure_extern(dtype_of(cast), _WHOLE, cast.value)


def _shown_whole_part(call: Call) -> Expr:
    return _shown_cast(call) if _hidden_name(call) == _WHOLE else call


def _shown_cast(call: Call) -> Expr:
    value, kind = call.args[1], scalar_dtype(call)
    number = int_value(lane_of(value))
    if number is None:
        return tirx.Cast(dtype_of(call), value)
    return literal(cut(number, kind), kind, lanes_of(call))


def _hidden_name(call: Call) -> str:
    """What a call to a function outside names; nothing of any other."""
    named = len(call.args) > 1 and isinstance(call.args[0], StringImm)
    return str(call.args[0].value) if named else ""


def _shown(call: Call) -> Expr:
    name = _hidden_name(call)
    if name in (_CAST, _WHOLE):
        return _shown_cast(call)
    if name == _BITS:
        return reinterpreted(dtype_of(call), call.args[1])
    kind = _KEPT.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if kind is None:
        return call
    folded = wrapped(kind, *call.args[1:])  # operands whose names were written out
    return kind(*call.args[1:]) if folded is None else folded


def _unequal(expr: Expr) -> Expr:
    return tirx.Not(tirx.EQ(expr.a, expr.b)) if dtype_of(expr.a).startswith("float") else expr
