"""Elements as memory holds them: stores that move them, whatever numbers they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.ir.exprs import choice_of, dtype_of, operands
from tilec.lowering.emission.storage import compute_type, element_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr

    from tilec.ir.nodes import Store

_FEW_STEPS = 2


def moved_bits(stmt: Store) -> Expr | None:
    """The bits that a store writes, where these are those of an element, of a number, or chosen among such;
    None where they are computed, or are what values of their type are computed in."""
    dtype = str(stmt.buffer.dtype)
    return None if compute_type(dtype) == dtype != "bool" else _bits(stmt.value, dtype)


def moves(stmt: Store) -> bool:
    """Whether a store writes an element, a number, or one chosen among such, as it is."""
    return _bits(stmt.value, str(stmt.buffer.dtype)) is not None


def hardly_computes(stmt: Store) -> bool:
    """Whether a store takes no more of what it reads than some operations, that lanes gain less by than loads
    for each of them cost."""
    steps = 0
    for node in _values(stmt.value):
        if isinstance(node, (Call, Var)):
            return False
        steps += not isinstance(node, (TensorLoad, tirx.Cast, tirx.IntImm, tirx.FloatImm))
    return steps <= _FEW_STEPS


def _values(expr: Expr) -> Iterator[Expr]:
    """The parts of an expression, those of indices left out."""
    yield expr
    if not isinstance(expr, TensorLoad):
        for part in operands(expr):
            yield from _values(part)


def _bits(expr: Expr, dtype: str) -> Expr | None:
    if dtype_of(expr) != dtype:
        return None
    bits = 8 * element_bytes(dtype)
    if isinstance(expr, tirx.IntImm):
        return tirx.const(int(expr.value) % (1 << bits), f"uint{bits}")
    if isinstance(expr, (TensorLoad, tirx.FloatImm)):
        return tirx.reinterpret(f"uint{bits}", expr)
    if (parts := choice_of(expr)) is None:
        return None
    cond, true, false = parts[0], _bits(parts[1], dtype), _bits(parts[2], dtype)
    return None if true is None or false is None else tirx.if_then_else(cond, true, false)
