"""Tests of counted loops against constants kept from LLVM, around stores of small integers and their bits.

    for v in range(32):                      for v in range(32):
        if v < 17: y[v] = uint16(x)    ->        if v + min(begin, 0) < 17: y[v] = uint16(x)

LLVM 22 narrows a vector while it stores the lanes that pass a test. Where it knows that a single one does, it
stores that lane alone, as wide as it was: AVX-512 code writes over the next element. ``begin``, the first
block of a call, is never negative, which LLVM does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, loads, same, substitute
from tilec.lowering.emission.body_passes import body_pass

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Expr, Var

    from tilec.lowering.emission.body_passes import Rewrite

#: Bits of what a wider vector may be narrowed to.
NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def open_tests() -> Any:
    """The pass of functions of TVM that does so."""

    def rewrites(function: tirx.PrimFunc) -> list[Rewrite]:
        counters = {loop.loop_var for loop in _found(function.body, tirx.For) if _is_counted(loop)}
        if not counters:
            return []
        *_, begin, _end = function.params
        zero = tirx.min(begin, tirx.const(0, "int64"))

        def opened(stmt: tirx.IfThenElse) -> tirx.IfThenElse:
            tests = conjuncts(stmt.condition)
            new = [_opened(test, counters, zero) for test in tests]
            if all(map(same, tests, new)) or not _narrows(stmt):
                return stmt
            return tirx.IfThenElse(all_of(new), stmt.then_case, stmt.else_case)

        return [(tirx.IfThenElse, opened)]

    return body_pass("OpenTests", rewrites)


def _found(body: Any, kind: type) -> list[Any]:
    """The statements of a kind. A map calls back for these alone, a walk for every node."""
    import tvm_ffi

    found: list[Any] = []

    def visit(node: Any) -> Any:
        found.append(node)
        return node

    tvm_ffi.structural_map(body, [(kind, visit)])
    return found


def _is_counted(loop: tirx.For) -> bool:
    """Whether the values of a loop's variable are known."""
    return int_value(loop.min) is not None and int_value(loop.extent) is not None


def _opened(test: Expr, counters: Set[Var], zero: Expr) -> Expr:
    """A test that counters and constants alone decide with ``zero`` added to each counter."""
    used = undefined_vars(test)
    if not all(var in counters for var in used) or next(loads(test), None) is not None:
        return test
    return substitute(test, {var: var + tirx.Cast(dtype_of(var), zero) for var in used})


def _narrows(stmt: tirx.IfThenElse) -> bool:
    return any(dtype_of(store.value) in NARROW for store in _found(stmt, tirx.BufferStore))
