"""Long names (`tilec/ir/analysis/long_names.py`), kept in arrays of one element, which compilers have in
registers.

    d = c * c + c    ->    array(1)[0] = c * c + c; d = array[0]

TVM's analyzer puts the value of each name into all that it simplifies. What is read from memory it leaves
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.ir.analysis.long_names import LongNames
from tilec.ir.exprs import loads
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def keep_long_names() -> Any:
    """The pass of functions of TVM that does so."""
    import tvm_ffi

    def kept(function: Any, _module: Any, _context: Any) -> Any:
        names = LongNames()
        body = tvm_ffi.structural_map(function.body, [(tirx.Bind, lambda stmt: _bind(stmt, names))])
        return function.with_body(body)

    return tirx.transform.prim_func_pass(kept, opt_level=0, name="tilec.KeepLongNames")


def in_array(var: Var, value: Expr, scope: str = "global") -> tuple[list[tirx.Stmt], Expr]:
    """The statements that store ``value`` to an array with the name of ``var``, and what reads it there."""
    dtype, _, _ = str(value.ty.dtype).partition("x")
    lanes = lanes_of(value)
    array = tirx.decl_buffer((lanes,), dtype, name=str(var.name), scope=scope)
    place = tirx.Ramp(tirx.const(0), tirx.const(1), lanes) if lanes > 1 else tirx.const(0)
    stored = [tirx.AllocBuffer(array), tirx.BufferStore(array, value, [place])]
    return stored, tirx.BufferLoad(array, [place])


def _bind(stmt: tirx.Bind, names: LongNames) -> tirx.Stmt:
    """The name itself, or one of an element."""
    if next(loads(stmt.value), None) is not None or not names.has(stmt.var, stmt.value):
        return stmt
    stored, read = in_array(stmt.var, stmt.value, "local")
    return tirx.SeqStmt([*stored, tirx.Bind(stmt.var, read)])
