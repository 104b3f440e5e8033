"""What a loop computes of a few bits is looked up.

for i, j: q = w[i, j] & 15;                                table = what each of 16 numbers comes to
          f[i, j] = if_then_else(q >= 8, -v, v) * s   ->   for i, j: f[i, j] = table[q] * s

A table of 32 words has one in each bank of shared memory: lanes never meet, whatever they look up. H200,
experts whose author makes 4-bit floats by an exponential, 8192 rows of 2880 to 5760 columns, us: 6480, and
1440 where the author looks them up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.idioms.codes import Codes
from tilec.ir.exprs import cast_to, dtype_of, int_value, may_inline, same, transform
from tilec.ir.nodes import (
    Alloc,
    Block,
    For,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    While,
    children,
    walk,
    with_children,
)
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.idle_names import without_idle
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Instructions that take longer than a look-up with its place, which other warps' wait for, too.
_LOOK_UP = 16
#: What makes a number of a table at most: it is written out.
_LONGEST = 256
#: Elements of a thread that are worth a table, if the loop runs once: filling it takes a barrier.
_WORTH = 32
_NOTE = "what {} comes to is looked up in a table of {}"


class LookUpCodes(LaunchPass):
    """In: Parallel loops. Out: in those that run often, or over many elements, what is computed of a few bits
    of an element alone, and takes longer than a look-up, is read from a table in shared memory, which the
    block fills first."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its tables."""
        made = _LookUps(prod(launch.threads) * _WORTH)
        body = made.block(launch.body)
        if not made.tables:
            return launch
        fills = [stmt for table in made.tables for stmt in table.filled()]
        return with_notes(replace(launch, body=(*fills, *body)), made.notes)


@dataclass(frozen=True, eq=False)
class _Table:
    """``buffer`` holds ``value`` for each ``number``, as ``loop`` computes it."""

    buffer: Var
    number: Var
    value: Expr
    loop: Parallel

    def filled(self) -> Block:
        """The table, and the loop that fills it."""
        store = Store(self.buffer, (self.number,), self.value, loc=self.loop.loc)
        return (
            Alloc(self.buffer, loc=self.loop.loc),
            Parallel((self.number,), (self.buffer.shape[0],), (store,), loc=self.loop.loc),
        )

    def holds(self, codes: Codes, expr: Expr, code: Expr) -> bool:
        """Whether ``expr`` of ``code`` is here."""
        whole = int_value(self.buffer.shape[0]) == codes.size(code)
        return whole and same(codes.meaning(expr, code, self.number), self.value)


@dataclass(eq=False)
class _LookUps:
    """The tables of a launch; loops that run once have ``least`` elements or more."""

    least: int
    tables: list[_Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def block(self, block: Block, often: bool = False) -> Block:
        """A block whose loops look up."""
        return tuple(self._stmt(stmt, often) for stmt in block)

    def _stmt(self, stmt: Stmt, often: bool) -> Stmt:
        if isinstance(stmt, Parallel):
            count = prod(int_value(each) or 0 for each in stmt.extents)
            return self._loop(stmt) if often or count >= self.least else stmt
        often = often or isinstance(stmt, (For, Pipelined, While))
        return with_children(stmt, [self.block(inner, often) for inner in children(stmt)])

    def _loop(self, loop: Parallel) -> Parallel:
        """A loop with its look-ups, without names that nothing mentions any more."""
        codes = Codes(values_of(walk(loop.body)))
        ways = [value for var, value in codes.names.items() if codes.of(var) is not None]

        def read(node: Expr) -> Expr | None:
            code = codes.of(node)
            if code is None or node.same_as(code) or not _LOOK_UP <= codes.cost(node, code) <= _LONGEST:
                return None
            if not may_inline((node,), codes.names):
                return None
            return tirx.BufferLoad(self._table(codes, node, code, loop).buffer, [cast_to(code, "int32")])

        def visit(expr: Expr) -> Expr:
            return expr if any(expr.same_as(way) for way in ways) else transform(expr, read)

        before = len(self.notes)
        body = map_block(loop.body, visit)
        return replace(loop, body=without_idle(body, codes.names)) if len(self.notes) > before else loop

    def _table(self, codes: Codes, expr: Expr, code: Expr, loop: Parallel) -> _Table:
        """One that is there, or a new one."""
        size = codes.size(code)
        self.notes.append(_NOTE.format(code, size))
        for table in self.tables:
            if table.holds(codes, expr, code):
                return table
        number = tirx.Var("number", "int32")
        buffer = tirx.decl_buffer((size,), dtype_of(expr), "looked_up", scope="shared.dyn")
        self.tables.append(_Table(buffer, number, codes.meaning(expr, code, number), loop))
        return self.tables[-1]
