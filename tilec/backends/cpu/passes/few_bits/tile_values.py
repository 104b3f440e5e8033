"""What elements of tiles are, as values of what the tiles are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import cast_to, dtype_of, inlined, substitute, transform
from tilec.ir.nodes import Bind, Copy, Parallel, Stmt, Store, is_global
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.ir.nodes import Block


class TileValues:
    """The tiles that copies and elementwise loops of a block fill, each of them one whole tile."""

    def __init__(self, block: Block) -> None:
        self._names = values_of(block)
        self._made: dict[Var, tuple[tuple[Expr, ...], Expr]] = {}
        for stmt in block:
            self._note(stmt)

    @property
    def tiles(self) -> list[Var]:
        """The tiles that are known."""
        return list(self._made)

    def value(self, tile: Var, indices: Sequence[Expr]) -> Expr | None:
        """Element ``indices`` of ``tile`` by what other buffers hold; None where it is not known."""
        return self._at(tile, indices) if tile in self._made else None

    def _at(self, tile: Var, indices: Sequence[Expr]) -> Expr:
        places, value = self._made[tile]
        pairs = zip(places, indices, strict=True)
        found = {place: cast_to(at, dtype_of(place)) for place, at in pairs if isinstance(place, Var)}
        return substitute(value, found)

    def _note(self, stmt: Stmt) -> None:
        """Remembers what ``stmt`` makes of tiles that are known in front of it."""
        loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        if not isinstance(loop, Parallel) or not loop.body:
            return
        *names, store = loop.body
        if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in names):
            return
        on_chip = not is_global(store.buffer)
        if store.buffer in self._made or not on_chip or not stores_each(store, loop):
            return
        value = inlined(store.value, self._names | values_of(names))
        self._made[store.buffer] = (tuple(store.indices), self.read(value))

    def read(self, value: Expr) -> Expr:
        """``value`` with elements of known tiles as their values."""

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, TensorLoad) or node.source not in self._made:
                return None
            return self._at(node.source, [self.read(index) for index in node.indices])

        return transform(value, visit)
