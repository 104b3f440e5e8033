"""A loop over elements with loops in its iterations, in parts: one loop over elements for what stands in
front of an inner loop, one within it, one for what stands behind. What an iteration hands on from part to
part lies in a fragment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import all_of, dtype_of, inlined, loads, transform, variables_of
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Parallel, Stmt, Store, children, walk, with_children
from tilec.ir.traits import expressions, mentioned
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from typing import TypeAlias

    from tvm.ir import Expr

    _Tree: TypeAlias = "tuple[_Part | _Trips, ...]"


@dataclass(frozen=True, eq=False)
class _Part:
    """Statements without a loop among them, and the conditions that they stand under."""

    conds: tuple[Expr, ...]
    body: Block

    def values(self) -> Iterator[Expr]:
        """All that it computes."""
        yield from self.conds
        yield from (value for stmt in walk(self.body) for value in expressions(stmt))


@dataclass(frozen=True, eq=False)
class _Trips:
    """A loop around parts."""

    loop: For
    body: _Tree


class Parts:
    """A loop in parts. ``kept``: the fragments of variables and names that several parts use. A name that
    reads nothing is there again in each part that uses it."""

    def __init__(self, loop: Parallel) -> None:
        self.loop, self._values = loop, values_of(walk(loop.body))
        self._parts: list[_Part] = []
        self._tree = tuple(self._parted(loop.body, ()))
        self.kept = {var: self._fragment(var) for var in self._shared()}

    def loops(self) -> list[Stmt]:
        """Its parts, and the loops around these."""
        rooms = [Alloc(fragment, loc=self.loop.loc) for fragment in self.kept.values()]
        return [*rooms, *self._made(self._tree)]

    def _parted(self, block: Block, conds: tuple[Expr, ...]) -> Iterator[_Part | _Trips]:
        between: list[Stmt] = []
        for stmt in block:
            if not any(isinstance(inner, For) for inner in walk((stmt,))):
                between.append(stmt)
                continue
            yield from self._part(between, conds)
            between = []
            if isinstance(stmt, For):
                yield _Trips(stmt, tuple(self._parted(stmt.body, conds)))
            elif isinstance(stmt, If):
                yield from self._parted(stmt.then, (*conds, stmt.cond))
                yield from self._parted(stmt.orelse, (*conds, tirx.Not(stmt.cond)))
        yield from self._part(between, conds)

    def _part(self, body: Sequence[Stmt], conds: tuple[Expr, ...]) -> Iterator[_Part]:
        if body:
            self._parts.append(_Part(conds, tuple(body)))
            yield self._parts[-1]

    def _shared(self) -> list[Var]:
        """The variables that several parts name, and the names that one reads and another one uses."""
        named = [{name for stmt in walk(part.body) for name in mentioned(stmt)} for part in self._parts]
        variables = [stmt.buffer for stmt in walk(self.loop.body) if isinstance(stmt, Alloc)]
        asked = dict.fromkeys(var for part in self._parts for var in self._asked(part) if self._reads(var))
        return [*(each for each in variables if sum(each in part for part in named) > 1), *asked]

    def _reads(self, name: Var) -> bool:
        return next(loads(self._values[name]), None) is not None

    def _asked(self, part: _Part) -> list[Var]:
        """The names of other parts that one needs, those that they are made of first."""
        own = {stmt.var for stmt in walk(part.body) if isinstance(stmt, Bind)}
        found: dict[Var, None] = {}
        self._ask(part.values(), own, found)
        return list(found)

    def _ask(self, values: Iterable[Expr], own: set[Var], found: dict[Var, None]) -> None:
        for var in variables_of(values):
            if var in self._values and var not in own and var not in found:
                if not self._reads(var):
                    self._ask((self._values[var],), own, found)
                found[var] = None

    def _fragment(self, var: Var) -> Var:
        dtype = str(var.dtype) if tirx.is_buffer_var(var) else dtype_of(var)
        return tirx.decl_buffer(self.loop.extents, dtype, f"{var.name}_kept", scope="local.fragment")

    def _made(self, tree: _Tree) -> list[Stmt]:
        return [self._loop(part) if isinstance(part, _Part) else self._trips(part) for part in tree]

    def _trips(self, trips: _Trips) -> For:
        loop = trips.loop
        start, stop, step = (inlined(value, self._values) for value in (loop.start, loop.stop, loop.step))
        return replace(loop, start=start, stop=stop, step=step, body=tuple(self._made(trips.body)))

    def _loop(self, part: _Part) -> Stmt:
        """A part as a loop of its own."""
        names = [Bind(var, self._values[var]) for var in self._asked(part) if var not in self.kept]
        body: Block = tuple(new for stmt in part.body for new in self._statement(stmt))
        if part.conds:
            body = (If(all_of(list(part.conds)), body),)
        body = tuple(self._placed(stmt, self._own(part)) for stmt in (*names, *body))
        return copied((replace(self.loop, body=body),))[0]

    def _own(self, part: _Part) -> set[Var]:
        return {stmt.var for stmt in part.body if isinstance(stmt, Bind)}

    def _statement(self, stmt: Stmt) -> Iterator[Stmt]:
        """A statement of a part, and what it puts into a fragment."""
        if isinstance(stmt, Alloc) and stmt.buffer in self.kept:
            if stmt.init is not None:
                yield Store(self.kept[stmt.buffer], self.loop.vars, stmt.init, loc=stmt.loc)
            return
        yield stmt
        if isinstance(stmt, Bind) and stmt.var in self.kept:
            yield Store(self.kept[stmt.var], self.loop.vars, stmt.var, loc=stmt.loc)

    def _placed(self, stmt: Stmt, own: set[Var]) -> Stmt:
        """A statement that finds what is kept in fragments, but for the names of its own part."""

        def read(node: Expr) -> Expr | None:
            var = node.source if isinstance(node, TensorLoad) else node
            if not isinstance(var, Var) or var in own or var not in self.kept:
                return None
            return tirx.BufferLoad(self.kept[var], list(self.loop.vars))

        return self._stored(map_stmt(stmt, lambda expr: transform(expr, read)))

    def _stored(self, stmt: Stmt) -> Stmt:
        stmt = with_children(stmt, [tuple(map(self._stored, block)) for block in children(stmt)])
        if not isinstance(stmt, Store) or stmt.buffer not in self.kept:
            return stmt
        return replace(stmt, buffer=self.kept[stmt.buffer], indices=self.loop.vars)
