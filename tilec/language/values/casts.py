"""Numbers as constants of TVM, and casts of its expressions, by the store rules of the language."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec import dtypes
from tilec.errors import SourceValueError
from tilec.language.values.kernel.places import source_error

if TYPE_CHECKING:
    from tvm.ir import Expr


def natural(number: int | float | bool) -> str:
    """The dtype of a Python number: int32 (int64 if it needs that), float32 or bool."""
    if isinstance(number, bool):
        return "bool"
    if isinstance(number, float):
        return "float32"
    return "int32" if -(2**31) <= number < 2**31 else "int64"


def constant(number: int | float | bool, to: str) -> Expr:
    """The number as a constant. Raises `SourceValueError` where it does not fit."""
    from tvm import tirx

    try:
        return tirx.const(_as_held(number, to), to)
    except Exception as error:  # TVM's range checks of literals
        why = str(error).strip().splitlines()[0]
        what, remedy = f"{number} does not fit {to}", "use a wider dtype, or a constant that fits"
        raise source_error(SourceValueError, what, why=why, remedy=remedy) from error


def _as_held(number: int | float | bool, to: str) -> int | float | bool:
    """A finite number as a type of 16 or 8 bits holds it; others as they are."""
    row = dtypes.DTYPES.get(to)
    if row is None or not row.is_float or row.bits not in (8, 16) or not math.isfinite(number):
        return number
    from tilec.ir.interp.values import held

    return held(number, to)


def wrap_number(number: int | float | bool, row: dtypes.DType) -> int | float | bool:
    """The number as an element of ``row`` holds it: truncated and wrapped for integers."""
    if row.kind == "bool":
        return bool(number)
    if row.is_float:
        return float(number)
    if not math.isfinite(number):
        raise source_error(
            SourceValueError,
            f"{number} cannot be stored as {row.name}",
            remedy="store a finite number: T.max_value or T.min_value of the dtype",
        )
    low = int(number) % (1 << row.bits)
    return low - (1 << row.bits) if row.kind == "int" and low >> (row.bits - 1) else low


def loses(number: int | float | bool, row: dtypes.DType) -> bool:
    """Whether an integer element drops a fraction, or bits beyond its own, of a finite number. What its bits
    hold may be of either sign: -1 is all of them."""
    if row.kind not in ("int", "uint"):
        return False
    return number != int(number) or not -(1 << (row.bits - 1)) <= number < 1 << row.bits


def _is_integer(to: str) -> bool:
    row = dtypes.DTYPES.get(to)
    return row is not None and row.kind in ("int", "uint")


def cast(expr: Expr, to: str) -> Expr:
    """The expression cast; to bool it is ``!= 0``. An integer that was made a wider one is cast as it was,
    and a constant becomes one of the type, wrapped around."""
    from tvm import tirx

    from tilec.ir.analysis.numbers.ranges import has_all

    while isinstance(expr, tirx.Cast):
        wide, small = str(expr.ty.dtype), str(expr.value.ty.dtype)
        if not (_is_integer(wide) and _is_integer(small) and has_all(wide, small)):
            break
        expr = expr.value
    if expr.ty.dtype == to:
        return expr
    if to == "bool":
        return tirx.NE(expr, tirx.const(0, str(expr.ty.dtype)))
    if isinstance(expr, tirx.IntImm) and _is_integer(to):
        return constant(wrap_number(int(expr.value), dtypes.DTYPES[to]), to)
    return tirx.Cast(to, expr)
