"""Long names (`tilec/ir/analysis/numbers/long_names.py`), kept in arrays of one element, which compilers have
in registers.

    d = c * c + c    ->    array(1)[0] = c * c + c; d = array[0]

TVM's analyzer puts the value of each name into all that it simplifies. What is read from memory it leaves
alone. It multiplies ends of ranges, too, and fails where one does not fit the type that it compares
(`(tile // 24 * 8 + row) * 128 < 1160` of a 32-bit tile without bounds): then names of conditions are kept,
too, and what `hide_numbers` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import PrimType

from tilec.ir.analysis.numbers.long_names import LongNames
from tilec.ir.analysis.numbers.ranges import BEYOND_TYPE
from tilec.ir.exprs import dtype_of, loads
from tilec.lowering.emission.body_passes import body_pass
from tilec.lowering.emission.keep_numbers import hide_numbers, show_numbers
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    import tvm
    from tvm.ir import Expr, Var

    from tilec.lowering.emission.body_passes import Rewrite

#: What TVM says of a number that does not fit its type.
_OVERFLOW = re.compile("exceeds range|exceeds maximum|negative uint|uint from negative")


def with_names_kept(
    run: Callable[[Any], tvm.IRModule], dear: Callable[[Expr], bool] = lambda value: False
) -> tvm.IRModule:
    """What ``run`` makes with a pass that keeps long names and those of ``dear`` values, or those of
    conditions, too."""
    try:
        return run(_keep_names(dear))
    except BEYOND_TYPE as problem:
        if _OVERFLOW.search(str(problem)) is None:
            raise
        import tvm

        passes = [hide_numbers(), _keep_names(lambda value: dear(value) or dtype_of(value) == "bool")]
        return show_numbers()(run(tvm.transform.Sequential(passes)))


def _keep_names(dear: Callable[[Expr], bool]) -> Any:
    """The pass of functions of TVM that keeps long names, and those of ``dear`` values."""

    def rewrites(_function: tirx.PrimFunc) -> list[Rewrite]:
        names = LongNames()

        def bind(stmt: tirx.Bind) -> tirx.Stmt:
            if not isinstance(stmt.value.ty, PrimType) or next(loads(stmt.value), None) is not None:
                return stmt
            return _kept(stmt) if names.has(stmt.var, stmt.value) or dear(stmt.value) else stmt

        return [(tirx.Bind, bind)]

    return body_pass("KeepLongNames", rewrites)


def array_of(name: str, value: Expr, scope: str = "global") -> tuple[tirx.Buffer, Expr]:
    """The array that holds a value like ``value``, and the place of it all."""
    dtype, _, _ = str(value.ty.dtype).partition("x")
    lanes = lanes_of(value)
    array = tirx.decl_buffer((lanes,), dtype, name=name, scope=scope)
    return array, tirx.Ramp(tirx.const(0), tirx.const(1), lanes) if lanes > 1 else tirx.const(0)


def in_array(var: Var, value: Expr, scope: str = "global") -> tuple[list[tirx.Stmt], Expr]:
    """The statements that store ``value`` to an array with the name of ``var``, and what reads it there."""
    array, place = array_of(str(var.name), value, scope)
    stored = [tirx.AllocBuffer(array), tirx.BufferStore(array, value, [place])]
    return stored, tirx.BufferLoad(array, [place])


def _kept(stmt: tirx.Bind) -> tirx.Stmt:
    """The name of an element that has its value."""
    stored, read = in_array(stmt.var, stmt.value, "local")
    return tirx.SeqStmt([*stored, tirx.Bind(stmt.var, read)])
