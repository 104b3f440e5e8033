"""What of a block the loads in it need: their places, and the control flow around them.

    for k in trips: n = table[k]; copy(X[n], Xs); x = f(Xs)
    ->
    for k in trips: n = table[k]; copy(X[n], Xs)

The producer runs this slice of the program and nothing else. A place that depends on what is computed on chip
cannot be known ahead: such a load stays with those who compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.nodes import (
    LOOPS,
    Bind,
    Block,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    If,
    Parallel,
    Pipelined,
    Scan,
    Stmt,
    Store,
    children,
    is_global,
    walk,
    with_children,
)
from tilec.ir.traits import defined, expressions, read, written

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_CONTROL = (*LOOPS, If)
_SCALAR = "local.var"
#: What gives a tile its elements without a product or a reduction.
_BRINGING = (Copy, Fill, Parallel, Scan)


@dataclass(frozen=True, eq=False)
class Program:
    """The statements of a launch: the ones around each, and who defines what. ``changed`` are the buffers
    that the launch writes."""

    body: Block
    changed: Set[Var]
    around: dict[Stmt, tuple[Stmt, ...]]
    definers: dict[Var, Stmt]
    writers: dict[Var, list[Stmt]]

    @classmethod
    def of(cls, body: Block, changed: Set[Var]) -> Program:
        """A launch's body."""
        around: dict[Stmt, tuple[Stmt, ...]] = {}

        def visit(block: Block, outer: tuple[Stmt, ...]) -> None:
            for stmt in block:
                around[stmt] = outer
                for inner in children(stmt):
                    visit(inner, (*outer, stmt))

        visit(body, ())
        definers = {var: stmt for stmt in around for var in defined(stmt)}
        writers: dict[Var, list[Stmt]] = {}
        for stmt, outer in around.items():
            loop = next((each for each in outer if isinstance(each, Parallel)), stmt)
            for buffer in written(stmt):
                writers.setdefault(buffer, []).append(loop)
        return cls(body, changed, around, definers, writers)

    def needed(self, load: Stmt) -> set[Stmt]:
        """The statements that a load needs, itself included. Unfit where one of them reads what is known to
        those who compute alone."""
        found: set[Stmt] = set()
        work = list(walk((load,)))
        while work:
            stmt = work.pop()
            if stmt in found:
                continue
            found.add(stmt)
            work += self.around[stmt]
            work += self._exits(stmt)
            for part in _parts(stmt):
                for buffer in set(read(part)) - set(defined(part)):
                    work += self._givers(buffer, load)
                for expr in expressions(part):
                    work += self._namers(expr, load)
        return found

    def tables(self, found: Iterable[Stmt]) -> set[Var]:
        """The tiles that statements read to find their places."""
        parts = [part for stmt in found for part in _parts(stmt)]
        return {buffer for part in parts for buffer in read(part) if _is_tile(buffer)}

    def _exits(self, stmt: Stmt) -> Iterator[Stmt]:
        """What ends trips of a loop early."""
        if isinstance(stmt, LOOPS):
            yield from (inner for block in children(stmt) for inner in walk(block)
                        if isinstance(inner, (Break, Continue)))  # fmt: skip

    def _givers(self, buffer: Var, load: Stmt) -> Iterator[Stmt]:
        """The statements that give a buffer its elements."""
        if buffer.scope() == _SCALAR:
            yield self.definers[buffer]
            yield from self.writers.get(buffer, ())
            return
        reason = f"the place of a load depends on {buffer.name}, which the launch computes"
        if not _is_tile(buffer):
            need(is_global(buffer) and buffer not in self.changed, reason, load)
            return
        wide = [extent for extent in static_extents(buffer) if extent != 1]
        writers = self.writers.get(buffer, [])
        plain = len(wide) <= 1 and all(map(_only_brings, writers))
        need(plain and buffer in self.definers, reason, load)
        yield self.definers[buffer]
        yield from writers

    def _namers(self, expr: Expr, load: Stmt) -> Iterator[Stmt]:
        """The statements that define the names in an expression; loops stand around it anyway."""
        for var in undefined_vars(expr):
            definer = self.definers.get(var)
            if definer is None or tirx.is_buffer_var(var) or isinstance(definer, (For, Pipelined, Parallel)):
                continue
            if not isinstance(definer, Bind):
                raise Unfit(f"the place of a load depends on {var.name}, which the launch computes", load)
            yield definer

    def slice(self, kept: Set[Stmt], whole: Collection[Stmt]) -> Block:
        """The statements ``kept``, in their places; those of ``whole`` with all that is inside, loops that
        bring tiles without stores to others."""
        others = {buffer for buffer in self.writers if _is_tile(buffer)}
        others -= {buffer for buffer in others if self.definers.get(buffer) in kept}
        return _kept(self.body, kept, whole, others)


def _parts(stmt: Stmt) -> Iterable[Stmt]:
    """A statement without the blocks inside, but with those of a Parallel."""
    return walk((stmt,)) if isinstance(stmt, Parallel) else (stmt,)


def _is_tile(buffer: Var) -> bool:
    return str(buffer.scope()) in ("shared.dyn", "local.fragment")


def _only_brings(stmt: Stmt) -> bool:
    """Whether a statement does nothing but give tiles their elements."""
    fitting = isinstance(stmt, _BRINGING) and all(map(is_scalar_code, children(stmt)))
    return fitting and all(map(_is_tile, stored(list(walk((stmt,))))))


def stored(stmts: Collection[Stmt]) -> Iterator[Var]:
    """What statements write, but for what is defined among them."""
    own = {var for stmt in stmts for var in defined(stmt)}
    return (buffer for stmt in stmts for buffer in written(stmt) if buffer not in own)


def _kept(block: Block, kept: Set[Stmt], whole: Collection[Stmt], others: Set[Var]) -> Block:
    return tuple(
        with_children(stmt, [_kept(inner, kept, whole, others) for inner in children(stmt)])
        if isinstance(stmt, _CONTROL) and stmt not in whole
        else _without_stores(stmt, others)
        if isinstance(stmt, Parallel) and stmt not in whole
        else stmt
        for stmt in block
        if stmt in kept
    )


def _without_stores(stmt: Stmt, others: Set[Var]) -> Stmt:
    """``stmt`` without the stores inside to these tiles."""

    def left(inner: Stmt) -> bool:
        return not (isinstance(inner, Store) and inner.buffer in others)

    blocks = [
        tuple(_without_stores(each, others) for each in block if left(each)) for block in children(stmt)
    ]
    return with_children(stmt, blocks)


def all_needed(program: Program, found: Iterable[Stmt]) -> set[Stmt]:
    """What several loads need."""
    return {stmt for load in found for stmt in program.needed(load)}
