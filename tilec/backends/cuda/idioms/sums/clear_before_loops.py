"""Accumulators that a product clears in the first trip of its loop are cleared in front of the loop.

for k in trips: gemm(As, Bs, acc, clear=k == 0)    ->    fill(acc, 0); for k in trips: gemm(As, Bs, acc)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx

from tilec.ir.exprs import dtype_of, inlined, int_value, loads, substitute, uses
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Block,
    Fill,
    For,
    Gemm,
    If,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.traits import defined, written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import used_in
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_Loop: TypeAlias = "For | Pipelined"
#: Trips behind the first one that a condition is looked at for.
_TRIPS = 1 << 30
_NOTE = "{} is cleared before its loop, not in the first trip"


class ClearBeforeLoops(Pass):
    """In: products in a loop whose `clear` holds in the first trip alone (``ko == 0``, through a name
    too), and branches of a loop that fill fragments in its first trip. Out: a Fill in front of the
    loop, products that do not clear. A loop that may have no trip would then clear what it did not: it is
    left alone unless what the accumulator holds in front of it is undefined."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every launch rewritten."""
        return rewrite_launches(kernel, lambda launch: _Clearing(kernel, launch).run())


class _Clearing(ScopedRewrite):
    """Rewrites one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.facts.enter_block(launch.grid)
        self._around: list[Stmt] = []
        self._cleared: list[str] = []

    def run(self) -> Launch:
        """The launch, with a note for what it clears elsewhere."""
        body = self.block(self.launch.body)
        if not self._cleared:
            return self.launch
        return with_notes(self.launch_with(body), map(_NOTE.format, self._cleared))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop, behind the fills that were those of its first trip."""
        if not isinstance(stmt, LOOPS):
            return super().stmt(stmt)
        self._around.append(stmt)
        (made,) = super().stmt(stmt)
        self._around.pop()
        if not isinstance(made, (For, Pipelined)):
            return [made]
        body, fills = self._without_clears(made, stmt)
        self._cleared += [str(fill.dst.buffer.name) for fill in fills]
        return [*fills, replace(made, body=body)]

    def _without_clears(self, loop: _Loop, origin: Stmt) -> tuple[Block, list[Fill]]:
        """What a loop does without clearing in its first trip, and what is cleared there."""
        body: list[Stmt] = []
        cleared: list[Fill] = []
        names = values_of(loop.body)
        met: set[Var] = set()
        for stmt in loop.body:
            cond, fills = _clears(stmt)
            fixed = not any(
                fill.dst.buffer in met or any(uses(part, (loop.var, *names)) for part in _places(fill))
                for fill in fills
            )
            first = cond is not None and fixed and self._is_first(inlined(cond, names), loop)
            if first and all(self._may_clear(fill.dst.buffer, loop, origin) for fill in fills):
                cleared += fills
                body += _uncleared(stmt)
            else:
                body.append(stmt)
            met |= used_in((stmt,))
        return tuple(body), cleared

    def _is_first(self, cond: Expr, loop: _Loop) -> bool:
        """Whether a condition holds in the first trip of a loop and in no other."""
        step = _step(loop)
        if step is None or any(True for _ in loads(cond)):
            return False
        later = tirx.Var("later", dtype_of(loop.var))
        self.facts.bind_range(later, 0, _TRIPS)
        first = substitute(cond, {loop.var: loop.start})
        other = substitute(cond, {loop.var: loop.start + (later + 1) * step})
        return self.facts.prove(first) is True and self.facts.prove(other) is False

    def _may_clear(self, buffer: Var, loop: _Loop, origin: Stmt) -> bool:
        """Whether nobody misses what a buffer holds if the loop has no trip."""
        if self.facts.prove(loop.start < loop.stop) is True:
            return True
        if buffer.scope() not in ("local.fragment", "shared.dyn"):
            return False
        before, behind = _outside(self.launch.body, origin)
        if not self._around:
            return not any(buffer in written(stmt) for stmt in before)
        inner = {var for stmt in walk((self._around[0],)) for var in defined(stmt)}
        steady = not any(uses(end, inner) or any(True for _ in loads(end)) for end in (loop.start, loop.stop))
        return steady and not any(buffer in written(stmt) for stmt in (*before, *behind))


def _outside(block: Block, loop: Stmt) -> tuple[list[Stmt], list[Stmt]]:
    """The statements of a block in front of a loop and behind it, in order."""
    every = [stmt for stmt in walk(block) if not isinstance(stmt, Alloc)]
    at, inside = every.index(loop), set(walk((loop,)))
    return every[:at], [stmt for stmt in every[at:] if stmt not in inside]


def _places(fill: Fill) -> tuple[Expr, ...]:
    """What decides where a fill writes, and what."""
    return (*fill.dst.start, fill.value)


def _step(loop: _Loop) -> Expr | None:
    """How far a loop counts in each trip; None where that is not known to be forward."""
    if isinstance(loop, Pipelined):
        return tirx.const(1, dtype_of(loop.var))
    return loop.step if (int_value(loop.step) or 0) > 0 else None


def _clears(stmt: Stmt) -> tuple[Expr | None, list[Fill]]:
    """What a statement fills where a condition holds."""
    if isinstance(stmt, Gemm):
        if int_value(stmt.clear) is not None:
            return None, []
        zero = tirx.const(0, str(stmt.c.buffer.dtype))
        return stmt.clear, [Fill(stmt.c, zero, loc=stmt.loc)]
    if isinstance(stmt, If) and not stmt.orelse and all(isinstance(part, Fill) for part in stmt.then):
        return stmt.cond, [part for part in stmt.then if isinstance(part, Fill)]
    return None, []


def _uncleared(stmt: Stmt) -> tuple[Stmt, ...]:
    return (replace(stmt, clear=tirx.const(False, "bool")),) if isinstance(stmt, Gemm) else ()
