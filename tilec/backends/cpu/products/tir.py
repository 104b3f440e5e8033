"""Short forms of the TIR nodes that explicit loops over vectors are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import cast_to, dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Type of loop variables: tiles are small, and LLVM widens them where an address needs it.
INDEX = "int32"

#: Where a prefetch may bring a line: the first cache, the second one.
FIRST, SECOND = 3, 2

#: Bytes of a cache line of the processors here, and of the least page, which is how far prefetchers look.
CACHE_LINE, PAGE = 64, 4096


def index(value: Expr | int) -> Expr:
    """``value`` in the type of the loops here."""
    if isinstance(value, int):
        return tirx.IntImm(INDEX, value)
    return cast_to(value, INDEX)


def prefetch(address: Expr, *, write: bool = False, near: int = FIRST) -> tirx.Stmt:
    """Asks for the cache line at ``address`` in the cache ``near``, for writing where ``write`` says so."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", address, int(write), near, 1))


def trips_of(value: Expr | int) -> Expr:
    """How often something is done, in the type of the loops here; never below 0."""
    if isinstance(value, int):
        return index(max(value, 0))
    return index(tirx.max(value, tirx.const(0, dtype_of(value))))


def span(start: Expr, lanes: int) -> Expr:
    """Indices of ``lanes`` consecutive elements."""
    return start if lanes == 1 else tirx.Ramp(start, index(1), lanes)


def get(registers: Var, at: Expr, lanes: int) -> Expr:
    """``lanes`` registers' elements from ``at``."""
    return tirx.BufferLoad(registers, [span(at, lanes)])


def put(registers: Var, at: Expr, value: Expr) -> tirx.Stmt:
    """Stores the lanes of ``value`` from ``at``."""
    return tirx.BufferStore(registers, value, [span(at, value.ty.dtype.lanes)])


def unrolled(count: int, body: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
    """``body`` for 0 to count - 1, to be unrolled."""
    return body(index(0)) if count == 1 else loop(count, body, tirx.ForKind.UNROLLED)


def loop(
    count: int | Expr, body: Callable[[Expr], tirx.Stmt], kind: tirx.ForKind = tirx.ForKind.SERIAL
) -> tirx.Stmt:
    """``body`` for 0 to count - 1."""
    var = tirx.Var("i", INDEX)
    return tirx.For(var, index(0), index(count), kind, body(var))


#: A function that does nothing, in code that has no second copy: a loop around a call of it stays one.
ONCE = """
define linkonce_odr hidden i32 @tilec_once() alwaysinline nounwind {
  call void asm sideeffect "", ""() noduplicate
  ret i32 0
}
"""


def once(body: tirx.Stmt) -> tirx.Stmt:
    """``body``, of which LLVM makes no second copy (`ONCE`): it would write out short loops, and others for
    several trips at a time, also those of which one trip is seldom run."""
    return sequence(tirx.Evaluate(tirx.call_extern("int32", "tilec_once")), body)


def kept_loop(count: int | Expr, body: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
    """``body`` for 0 to count - 1, in a loop that stays one."""
    return loop(count, lambda var: once(body(var)))


def sequence(*parts: tirx.Stmt) -> tirx.Stmt:
    """Statements one after another; of none one that does nothing."""
    if not parts:
        return tirx.Evaluate(index(0))
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(list(parts))


def lanes_total(vector: Expr, join: Callable[[Expr, Expr], Expr] = operator.add) -> Expr:
    """The sum of the lanes of a vector, or what else ``join`` makes of two of them, halves first."""
    lanes = vector.ty.dtype.lanes
    while lanes > 1:
        lanes //= 2
        name = tirx.Var("v", dtype_of(vector))
        low, high = ([index(lane) for lane in range(start, start + lanes)] for start in (0, lanes))
        vector = tirx.Let(name, vector, join(tirx.Shuffle([name], low), tirx.Shuffle([name], high)))
    return vector
