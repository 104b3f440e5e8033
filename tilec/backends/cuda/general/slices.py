"""What of a block the loads in it need: their places, and the control flow around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import loads
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Pipelined,
    Stmt,
    Store,
    While,
    children,
    walk,
    with_children,
)
from tilec.ir.traits import defined, expressions

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_CONTROL = (For, Pipelined, While, If)
_SCALAR = "local.var"


@dataclass(frozen=True, eq=False)
class Program:
    """The statements of a launch: the ones around each, and who defines what. ``changed`` are the buffers
    that the launch writes."""

    body: Block
    changed: Set[Var]
    around: dict[Stmt, tuple[Stmt, ...]]
    definers: dict[Var, Stmt]
    stores: dict[Var, list[Stmt]]

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
        stores: dict[Var, list[Stmt]] = {}
        for stmt in around:
            if isinstance(stmt, Store):
                stores.setdefault(stmt.buffer, []).append(stmt)
        return cls(body, changed, around, definers, stores)

    def needed(self, load: Stmt) -> set[Stmt]:
        """The statements that a load needs, itself included. Unfit where one of them reads what is known to
        those who compute alone."""
        found: set[Stmt] = set()
        work = [load]
        while work:
            stmt = work.pop()
            if stmt in found:
                continue
            found.add(stmt)
            work += self.around[stmt]
            work += self._exits(stmt)
            for expr in expressions(stmt):
                work += self._sources(expr, load)
        return found

    def _exits(self, stmt: Stmt) -> Iterator[Stmt]:
        """What ends trips of a loop early."""
        if isinstance(stmt, (For, Pipelined, While)):
            yield from (inner for block in children(stmt) for inner in walk(block)
                        if isinstance(inner, (Break, Continue)))  # fmt: skip

    def _sources(self, expr: Expr, load: Stmt) -> Iterator[Stmt]:
        """The statements that give the names in an expression."""
        read = {each.source for each in loads(expr)}
        for buffer in read:
            if buffer.scope() == _SCALAR:
                yield self.definers[buffer]
                yield from self.stores.get(buffer, ())
            elif not buffer.scope().startswith("global") or buffer in self.changed:
                raise Unfit(f"the place of a load depends on {buffer.name}, which the launch computes", load)
        for var in undefined_vars(expr):
            definer = self.definers.get(var)
            if definer is None or var in read:
                continue
            if not isinstance(definer, (Bind, For, Pipelined, Alloc)):
                raise Unfit(f"the place of a load depends on {var.name}, which the launch computes", load)
            yield definer

    def slice(self, kept: Set[Stmt]) -> Block:
        """The statements ``kept``, in their places."""
        return _kept(self.body, kept)


def _kept(block: Block, kept: Set[Stmt]) -> Block:
    return tuple(
        with_children(stmt, [_kept(inner, kept) for inner in children(stmt)])
        if isinstance(stmt, _CONTROL)
        else stmt
        for stmt in block
        if stmt in kept
    )


def all_needed(program: Program, found: Iterable[Stmt]) -> set[Stmt]:
    """What several loads need."""
    return {stmt for load in found for stmt in program.needed(load)}
