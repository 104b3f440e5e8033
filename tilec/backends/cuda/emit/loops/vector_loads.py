"""What a vector of iterations reads of memory, in front of its body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.vectors import (
    HELD_BY_TWO,
    begins_anywhere,
    span,
    vector_width,
)
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.access_notes import Moved
from tilec.backends.cuda.emit.loops.vector_moves import (
    load_vector,
    put_together,
)
from tilec.backends.cuda.emit.loops.vector_scope import VectorScope
from tilec.ir.exprs import dtype_of, loads, same, uses
from tilec.ir.nodes import Bind, For, walk
from tilec.ir.traits import expressions, loads_of
from tilec.lowering.analysis.accesses import Access

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.loops.reads_first import FirstReads, HaveRead


class VectorLoads:
    """The reads of a vector, of which all vectors of a thread have some ``first``."""

    def __init__(self, scope: VectorScope, first: FirstReads | HaveRead | None = None) -> None:
        self.scope, self.ctx, self.first = scope, scope.ctx, first
        self.body, self.var, self.width = scope.body, scope.var, scope.width

    def in_front(self) -> list[tirx.Stmt]:
        """Loads every vector that the body reads element by element into registers of its own. Reads whose
        place is known go first: one that waits for another holds up all behind it."""
        inner = {stmt.var for stmt in walk(self.body) if isinstance(stmt, Bind)}
        inner |= {stmt.var for stmt in walk(self.body) if isinstance(stmt, For)}
        found = list(loads_of(*walk(self.body)))
        found.sort(key=lambda load: _depth(load, self.ctx))
        return [part for load in found for part in self._hoist(load, inner)]

    def _hoist(self, load: TensorLoad, inner: set[Var]) -> list[tirx.Stmt]:
        if not self.scope.is_memory(load.source) or load.source in self.scope.written:
            return []
        if any(same(load, other) for other, *_ in [*self.scope.held, *self.scope.fixed]):
            return []
        indices = self.scope.spelled(load.indices)
        if any(uses(index, inner) for index in indices):
            return []
        if any(other.source in self.scope.written for index in indices for other in loads(index)):
            return []
        with self.ctx.hoist_scope(self.scope.fixed):
            return self.bring(load, indices)

    def bring(self, load: TensorLoad, indices: tuple[Expr, ...]) -> list[tirx.Stmt]:
        """A read of the same element in all iterations happens once, one of neighbours as vectors."""
        if self.width == 1 and not self._repeats(load, indices):
            return self._combed(load)
        if self.width == 1 or not any(uses(index, (self.var,)) for index in indices):
            self._bring_once(load, indices)
            return []
        source, facts = load.source, self.ctx.facts
        width = vector_width(source, indices, self.var, self.scope.limit(source), facts)
        steps = tuple(range(self.width))
        if width < self.width:
            run = span(source, indices, self.var, self.width, self.scope.limit(source), facts)
            if run is not None and run[0] > width:
                width, steps = run
            elif width == 1:
                of_two = self._of_two(load, indices)
                if of_two or run is None:
                    return of_two or self._combed(load)
                steps = run[1]
        return self._as_vectors(load, indices, width, steps)

    def _bring_once(self, load: TensorLoad, indices: tuple[Expr, ...]) -> None:
        """The same element in all iterations, in front of them."""
        inlined = tirx.BufferLoad(load.source, list(indices))
        value = self.ctx.raw(inlined)
        register = self.ctx.fresh(f"{load.source.name}_once", dtype_of(value))
        self.scope.fixed += [(load, register), (inlined, register)]
        self.scope.once.append(tirx.Bind(register, value))

    def _as_vectors(
        self, load: TensorLoad, indices: tuple[Expr, ...], width: int, steps: tuple[int, ...]
    ) -> list[tirx.Stmt]:
        """Neighbours as vectors of ``width`` elements; iterations have those at ``steps`` of what is read."""
        tmp = self.scope.registers(load.source, "v", 1 << max(steps).bit_length())
        self.scope.held.append((load, tmp, steps))
        if width > 1 or begins_anywhere(load.source, indices, self.var, self.width, self.ctx.facts) == 1:
            self.scope.moved.append(Moved(Access(load.source, tuple(load.indices), False), width))
        firsts = [steps.index(first) for first in range(0, max(steps) + 1, width)]
        spelled = self.scope.spelled(load.indices)
        moves = self.scope.chunks(load.source, spelled, tmp, width, load_vector, firsts)
        if self.first is not None and self.first.takes(load):
            return self.first.brought(tmp, moves)
        return [tirx.AllocBuffer(tmp), *moves]

    def _of_two(self, load: TensorLoad, indices: tuple[Expr, ...]) -> list[tirx.Stmt]:
        """Neighbours that begin between two vectors, put together of these."""
        source = load.source
        width = begins_anywhere(source, indices, self.var, self.scope.limit(source), self.ctx.facts)
        if width < HELD_BY_TWO:
            return []
        tmp, above = (self.scope.registers(source, prefix, self.width) for prefix in "va")
        self.scope.held.append((load, tmp, tuple(range(self.width))))
        self.scope.moved.append(Moved(Access(source, tuple(load.indices), False), width))
        *rows, last = self.scope.spelled(load.indices)
        number = tirx.const(width, dtype_of(last))
        low = tirx.floordiv(last, number) * number
        behind = low + number
        firsts = range(0, self.width, width)
        return [
            tirx.AllocBuffer(tmp),
            tirx.AllocBuffer(above),
            *self.scope.chunks(source, (*rows, low), tmp, width, load_vector, firsts),
            *self.scope.chunks(source, (*rows, behind), above, width, load_vector, firsts),
            *self.scope.chunks(source, (*rows, last), tmp, width, put_together(above), firsts),
        ]

    def _combed(self, load: TensorLoad) -> list[tirx.Stmt]:
        """Vectors of all the elements that the body reads along the loop, each of which has every so many."""
        found = self.scope.comb(Access(load.source, tuple(load.indices), False))
        if found is None:
            return []
        comb, width, members = found
        tmp = self.scope.registers(load.source, "v", comb.stride * self.width)
        for item in members:
            first = self.scope.combs[item][0].number
            steps = tuple(range(first, comb.stride * self.width, comb.stride))
            self.scope.held.append((tirx.BufferLoad(item.buffer, list(item.indices)), tmp, steps))
            self.scope.moved.append(Moved(item, width))
        *rows, place = self.scope.spelled(load.indices)
        start = (*rows, self.ctx.facts.analyzer.simplify(place - comb.number))
        firsts = range(0, self.width, width // comb.stride)
        return [
            tirx.AllocBuffer(tmp),
            *self.scope.chunks(load.source, start, tmp, width, load_vector, firsts),
        ]

    def _repeats(self, load: TensorLoad, indices: tuple[Expr, ...]) -> bool:
        """Whether a thread reads an element in several iterations, on every way through the body."""
        always = [expr for stmt in self.body for expr in expressions(stmt)]
        is_read = any(load.same_as(found) for expr in always for found in loads(expr))
        held = [
            var
            for var in self.scope.stmt.vars
            if any(part.in_register and part.size > 1 for part in self.ctx.digits[var])
        ]
        return is_read and not all(any(uses(index, (var,)) for index in indices) for var in held)


def _depth(load: TensorLoad, ctx: DeviceContext) -> int:
    """How many reads one after the other lead to the place of a read."""
    inner = (each for index in load.indices for each in loads(ctx.facts.inline(index)))
    return max((1 + _depth(each, ctx) for each in inner), default=0)
