"""Last tiles that end where their tensor does: they begin earlier, and what they share with the tile in front
of them is computed and stored by both, bit by bit the same.

TMA gives zeros for rows outside of a tensor, but where many blocks ask for such rows they are slower than
those that it brings: on an H200 with 132 blocks a box of 128 rows took 291 clocks, and 721 with 80 of them
outside (docs/performance/gpu-products.md). A tile that begins at
``min(block * size, extent - size)`` has no such rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST, divides
from tilec.ir.exprs import dtype_of, inlined, int_value, substitute, transform, uses
from tilec.ir.nodes import Bind, Block, Copy, If, Parallel, Store, walk
from tilec.ir.traits import expressions, read
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Stmt
    from tilec.lowering.analysis.facts import Facts


@dataclass(frozen=True, eq=False)
class Start:
    """Where tiles of ``size`` begin along an axis of ``extent``: at ``var``, in place of ``block * size``."""

    var: Var
    block: Var
    size: int
    extent: Expr

    def bind(self, facts: Facts) -> Bind:
        """The name: the last tile ends with its tensor where that holds a whole one."""
        zero, size = (tirx.const(each, dtype_of(self.var)) for each in (0, self.size))
        last = self.extent - size
        if not self.is_whole(facts):
            last = tirx.Max(last, zero)
        return Bind(self.var, tirx.Min(self.block * size, last))

    def is_whole(self, facts: Facts) -> bool:
        """Whether the tensor is known to hold a whole tile."""
        return facts.prove(self.extent >= tirx.const(self.size, dtype_of(self.extent))) is True

    def named(self, stmt: Stmt) -> Stmt:
        """A statement with the name in place of the product."""
        return map_stmt(stmt, lambda expr: transform(expr, self._name))

    def _name(self, node: Expr) -> Expr | None:
        if not isinstance(node, tirx.Mul) or not node.a.same_as(self.block):
            return None
        return self.var if int_value(node.b) == self.size else None

    def is_brought(self, buffer: Var, indices: Sequence[Expr], facts: Facts) -> bool:
        """Whether TMA may move boxes that begin there: along rows at multiples of 16 bytes alone."""
        whole = WIDEST // element_bytes(str(buffer.dtype))
        aligned = self.size % whole == 0 and divides(whole, self.extent, facts)
        return aligned or not uses(indices[-1], (self.var,))


def start_of(place: Expr, size: int, extent: Expr, blocks: Sequence[Var], facts: Facts) -> Start | None:
    """The start of tiles that begin at ``place``, a block's number times their ``size``; None for others, and
    where the last one is known to be whole."""
    block = next((var for var in blocks if _is_multiple(place, var, size, facts)), None)
    if block is None or dtype_of(extent) != dtype_of(block) or divides(size, extent, facts):
        return None
    return Start(tirx.Var(f"{block.name}_start", dtype_of(block)), block, size, extent)


def _is_multiple(place: Expr, block: Var, size: int, facts: Facts) -> bool:
    own = block * tirx.const(size, dtype_of(block))
    return dtype_of(place) == dtype_of(own) and int_value(facts.simplify(facts.inline(place) - own)) == 0


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements of an accumulator whose tiles begin at ``start`` along ``axis``: which values hang on their
    place in the tensors along it, and not on that in the tile. ``names`` are those in scope; nothing ``read``
    may be stored, as another block may do that first."""

    start: Start
    axis: int
    names: Mapping[Var, Expr]
    read: Collection[Var]
    facts: Facts
    _place: Var = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_place", tirx.Var("place", dtype_of(self.start.var)))

    @classmethod
    def of(cls, start: Start, axis: int, block: Block, facts: Facts) -> Elements:
        """Those of the tiles of a block, whose own statements bind its names."""
        names = values_of(block)
        return cls(start, axis, names, {each for stmt in walk(block) for each in read(stmt)}, facts)

    def may_begin(self, block: Block, tile: Var) -> bool:
        """Whether tiles may begin at the start, of which ``tile`` is an operand that is brought from there: a
        copy and what is stored hang on it, and nothing else does. ``block`` names it, and not the block's
        number."""
        every = (expr for stmt in walk(block) for expr in expressions(stmt))
        return not any(uses(expr, (self.start.block,)) for expr in every) and all(
            self._may_begin(stmt, tile) for stmt in block if not isinstance(stmt, Bind)
        )

    def _may_begin(self, stmt: Stmt, tile: Var) -> bool:
        if isinstance(stmt, Parallel):
            return all(self._leaves_alike(inner, stmt.vars[self.axis]) for inner in walk(stmt.body))
        found = [inlined(expr, self.names) for expr in expressions(stmt) if self.hangs_on_tile(expr)]
        if not isinstance(stmt, Copy) or not stmt.dst.buffer.same_as(tile):
            return not found
        brought = self.start.is_brought(stmt.src.buffer, stmt.src.start, self.facts)
        return brought and len(found) == 1 and found[0].same_as(self.start.var)

    def hangs_on_tile(self, value: Expr) -> bool:
        """Whether a value is another one in another tile."""
        return uses(inlined(value, self.names), (self.start.var,))

    def is_alike(self, value: Expr, var: Var) -> bool:
        """Whether a value is the same for an element at ``var`` of any tile that has it."""
        return not uses(self._by_place(value, var), (self.start.var,))

    def _leaves_alike(self, stmt: Stmt, var: Var) -> bool:
        """Whether what a statement stores of an element is the same in any tile that has it, and in tensors
        that end with the tiles."""
        if not isinstance(stmt, (Bind, If, Store)):
            return False
        if isinstance(stmt, Store) and stmt.buffer.scope() != "global":
            return stmt.indices[self.axis].same_as(var) and self.is_alike(stmt.value, var)
        alike = all(self.is_alike(value, var) for value in expressions(stmt))
        return alike and (not isinstance(stmt, Store) or self._ends(stmt, var))

    def _ends(self, store: Store, var: Var) -> bool:
        """Whether a tensor that is stored to ends with the tiles, or in front of their ends."""
        if store.buffer in self.read or not self.start.is_brought(store.buffer, store.indices, self.facts):
            return False
        return any(
            self._by_place(index, var).same_as(self._place)
            and self.facts.prove(extent <= self.start.extent) is True
            for index, extent in zip(store.indices, store.buffer.shape, strict=True)
        )

    def _by_place(self, value: Expr, var: Var) -> Expr:
        """A value, its element named by its place in the tensors."""

        def visit(node: Expr) -> Expr | None:
            of_fragment = isinstance(node, TensorLoad) and node.source.scope() != "global"
            own = of_fragment and node.indices[self.axis].same_as(var)
            return tirx.const(0, dtype_of(node)) if own else None

        bare = transform(inlined(value, self.names), visit)
        return sym.Analyzer().simplify(substitute(bare, {var: self._place - self.start.var}))
