"""Operands brought to a dtype: typed constants, common dtypes, conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceValueError
from tilec.language.values.casts import cast, constant, wrap_number
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_value, expression, no_operand, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype
from tilec.language.values.value import Value, is_number, is_symbolic, plain, resolve

if TYPE_CHECKING:
    from tvm.ir import Expr


def typed_value(value: Any, to: dtype) -> Value:
    """``T.int32(x)``: a cast; a number becomes a constant and must fit (`SourceValueError`)."""
    value = resolve(value)
    if isinstance(value, Value):
        return cast_value(value, to)
    if not is_number(value):
        raise no_operand(f"T.{to}", value)
    number, row = plain(value), to.row
    if row.is_integer and not math.isfinite(number):
        raise source_error(
            SourceValueError, f"{number} is no value of {to}", remedy="use a float dtype, or a finite number"
        )
    if row.is_integer and wrap_number(number, row) != int(number):
        raise source_error(SourceValueError, f"{number} does not fit {to}", remedy="use a wider dtype")
    return Value(constant(wrap_number(number, row), to))


def tirx_function(name: str) -> Callable[..., Any]:
    """TVM's function of that name; loaded when a kernel first needs it."""
    from tvm import tirx

    found: Callable[..., Any] = _power if name == "pow" else getattr(tirx, name)
    return found


def _power(x: Expr, y: Expr) -> Expr:
    """What TVM's own function makes, which writes a line about every exponent from 3 on."""
    from tvm.ir import Call, Op

    return Call(Op.get("tirx.pow"), [x, y], ret_ty=x.ty)


def common(a: Any, b: Any, construct: str) -> tuple[Value, Value]:
    """Two operands of ``construct`` in the dtype that an operator would bring them to. Raises
    `SourceTypeError` for what is neither a number nor an expression."""
    left, right = resolve(a), resolve(b)
    for side in (left, right):
        if not (is_symbolic(side) or is_number(side)):
            raise no_operand(construct, side)
    if not is_symbolic(left, right):
        left = wrap(left)
    target = apply("max", left, right).dtype
    return cast_value(left, target), cast_value(right, target)


def condition(value: Any, construct: str) -> Expr:
    """``value`` as a bool expression; numbers other than bool mean ``!= 0``."""
    expr = expression(value, construct)
    return expr if expr.ty.dtype == "bool" else cast(expr, "bool")
