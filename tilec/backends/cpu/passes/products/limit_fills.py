"""Tiles that a loop fills with elements of a tensor for one product alone get no more than it reads.

A tile of 1024 along K may belong to a tensor that has 200: what lies behind them would be zeros that nobody
reads. Copies to packed tiles know that themselves (`packing`); what is turned on its way is a loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.ir.exprs import cast_to, dtype_of, int_value
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Block, Launch, Parallel, Stmt, Store, is_global, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.uses import users
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr


class LimitFills(LaunchPass):
    """In: Parallel loops that bring elements of a tensor to a tile, which is the left operand of one product
    of the same block and nothing else. Out: the same over as many rows, and as much of K, as it reads."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops limited."""
        used = users(launch.body)
        return replace(launch, body=rewrite_blocks(launch.body, lambda block: _limited(block, used)))


def _limited(block: Block, used: Mapping[Var, list[Stmt]]) -> list[Stmt]:
    own = {var for stmt in block for inner in walk((stmt,)) for var in defined(inner)}
    products = {stmt.a.region.buffer: stmt for stmt in block if isinstance(stmt, MicroGemm)}
    return [_fewer(stmt, products, used, own) for stmt in block]


def _fewer(
    stmt: Stmt, products: Mapping[Var, MicroGemm], used: Mapping[Var, list[Stmt]], own: set[Var]
) -> Stmt:
    """``stmt``, or a loop over what the product of its tile reads, which names from outside of the block
    tell."""
    store = _moved(stmt)
    product = None if store is None else products.get(store.buffer)
    if not isinstance(stmt, Parallel) or store is None or product is None:
        return stmt
    if not _is_theirs(store, product, used[store.buffer]):
        return stmt
    place = {store.indices[product.a.row]: product.rows, store.indices[product.a.col]: product.depth}
    extents = (
        _less(extent, place.get(var), own) for var, extent in zip(stmt.vars, stmt.extents, strict=True)
    )
    return replace(stmt, extents=tuple(extents))


def _moved(stmt: Stmt) -> Store | None:
    """The store of a loop that does nothing but fill a tile of two axes with elements of a tensor, converted
    or not, each variable along one of them."""
    if not isinstance(stmt, Parallel) or len(stmt.body) != 1:
        return None
    store = stmt.body[0]
    if not isinstance(store, Store) or is_global(store.buffer) or {len(store.indices), len(stmt.vars)} != {2}:
        return None
    value = store.value.value if isinstance(store.value, tirx.Cast) else store.value
    read = isinstance(value, TensorLoad) and is_global(value.source)
    return store if read and set(store.indices) == set(stmt.vars) else None


def _is_theirs(store: Store, product: MicroGemm, others: list[Stmt]) -> bool:
    """Whether the tile of ``store`` is the left operand of ``product`` and nothing else, from its first
    element on; words may be read whole."""
    region, form = product.a.region, product.block.form
    known = [store, product]
    alone = all(isinstance(user, Alloc) or any(user is each for each in known) for user in others)
    exact = form == "across" or word_form(form) is None
    first = all(int_value(start) == 0 for start in region.start)
    return alone and exact and first and not product.b.region.buffer.same_as(store.buffer)


def _less(extent: int | Expr, count: int | Expr | None, own: set[Var]) -> int | Expr:
    """``count`` where that is told by names from outside of a block, else ``extent``."""
    if count is None or isinstance(count, int) or int_value(extent) is None:
        return extent
    if any(isinstance(node, Var) and node in own for node in walk_expr(count)):
        return extent
    return cast_to(count, dtype_of(extent)) if not isinstance(extent, int) else count
