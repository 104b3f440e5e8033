"""Operands that are scaled as they come on chip are scaled behind their products instead.

    for i, d: Qs[i, d] *= 0.125; gemm(Qs, Ks, s)    ->    gemm(Qs, Ks, s); for i, j: s[i, j] *= 0.125

Then Qs is as TMA has brought it, and wgmma reads it where it lies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import masked
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import cast_to, inlined, int_value, is_zero, loads, same_all, uses
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    Gemm,
    Launch,
    Parallel,
    Stmt,
    Store,
    is_global,
    walk,
)
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_HALVES, _SUM = ("float16", "bfloat16"), "float32"
_NOTE = "{} is scaled behind its products, in float32, not before them"


class ScaleBehindProducts(LaunchPass):
    """In: a loop that brings a tensor to a 16-bit tile and multiplies it by a factor that is the same for all
    elements, or multiplies the tile in place; products of it, into cleared float32 sums, are all that the
    tile is used for. Out: the tile as the tensor has it, and the factor behind each product. The elements are
    not rounded once more, so that sums differ from those of the scaled tile by what this rounding did: half a
    unit in the last place of each element at most."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with factors behind products; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars:
            return launch
        found = next((made for block in _blocks(launch) for made in _scalings(launch, block)), None)
        if found is None:
            return launch
        body = rewrite_blocks(launch.body, lambda block: [new for stmt in block for new in found.stmt(stmt)])
        return self.launch(with_notes(replace(launch, body=body), [_NOTE.format(found.tile.name)]))


@dataclass(frozen=True, eq=False)
class _Scaling:
    """The loop ``origin`` that scales a tile by ``factor``; it becomes ``plain``."""

    tile: Var
    factor: Expr
    origin: Stmt
    plain: Block

    def stmt(self, stmt: Stmt) -> Block:
        """What a statement becomes."""
        if stmt is self.origin:
            return self.plain
        if not isinstance(stmt, Gemm) or self.tile not in set(buffers(stmt)):
            return (stmt,)
        total = stmt.c.buffer
        names = tuple(tirx.Var(f"i{axis}", "int32") for axis in range(len(total.shape)))
        value = tirx.BufferLoad(total, list(names)) * cast_to(self.factor, _SUM)
        store = Store(total, names, value, loc=stmt.loc)
        return stmt, Parallel(names, static_extents(total), (store,), loc=stmt.loc)


def _blocks(launch: Launch) -> list[Block]:
    """The blocks of a launch."""
    found: list[Block] = []

    def met(block: Block) -> Block:
        found.append(block)
        return block

    rewrite_blocks(launch.body, met)
    return found


def _scalings(launch: Launch, block: Block) -> list[_Scaling]:
    """The loops of a block that scale what products behind them use."""
    found = (_scaling(stmt) for stmt in block if isinstance(stmt, Parallel))
    return [each for each in found if each is not None and _is_for_products(each, launch, block)]


def _scaling(loop: Parallel) -> _Scaling | None:
    *binds, store = loop.body
    if not isinstance(store, Store) or not all(isinstance(stmt, Bind) for stmt in binds):
        return None
    tile = store.buffer
    own = same_all(store.indices, loop.vars) and tuple(map(int_value, loop.extents)) == static_extents(tile)
    if tile.scope() != "shared.dyn" or str(tile.dtype) not in _HALVES or not own:
        return None
    value = inlined(store.value, values_of(binds))
    parts = _parts(value, loop)
    if parts is None:
        return None
    load, factor, cond = parts
    if load.source.same_as(tile):
        in_place = cond is None and same_all(tuple(load.indices), store.indices)
        return _Scaling(tile, factor, loop, ()) if in_place else None
    if not is_global(load.source) or str(load.source.dtype) != str(tile.dtype):
        return None
    kept = load if cond is None else tirx.if_then_else(cond, load, tirx.const(0, str(tile.dtype)))
    return _Scaling(tile, factor, loop, (replace(loop, body=(replace(store, value=kept),)),))


def _parts(value: Expr, loop: Parallel) -> tuple[TensorLoad, Expr, Expr | None] | None:
    """The element, the factor and the condition of ``element * factor if condition else 0``, casts between
    them aside; None for anything else, and for an element without a factor."""
    factor: Expr | None = None
    cond: Expr | None = None
    while not isinstance(value, TensorLoad):
        inside, chosen = masked(value)
        if inside is not None and cond is None:
            cond, value = inside, chosen
        elif isinstance(value, tirx.Cast):
            value = value.value
        elif isinstance(value, tirx.Mul) and factor is None:
            sides = [side for side in (value.b, value.a) if _is_fixed(side, loop)]
            if len(sides) != 1:
                return None
            (factor,) = sides
            value = value.a if factor is value.b or factor.same_as(value.b) else value.b
        else:
            return None
    return None if factor is None else (value, factor, cond)


def _is_fixed(value: Expr, loop: Parallel) -> bool:
    return not uses(value, loop.vars) and not any(True for _ in loads(value))


def _is_for_products(scaling: _Scaling, launch: Launch, block: Block) -> bool:
    """Whether products behind a loop are all that a tile is used for, and its copies in front of it."""
    at = block.index(scaling.origin)
    front, own, behind = (set(walk(part)) for part in (block[:at], (scaling.origin,), block[at + 1 :]))
    others = (stmt for stmt in walk(launch.body) if not isinstance(stmt, Alloc) and stmt not in own)
    users = [stmt for stmt in others if scaling.tile in set(buffers(stmt))]
    products = [stmt for stmt in users if isinstance(stmt, Gemm) and stmt in behind]
    copies = [stmt for stmt in users if _fills(stmt, scaling.tile) and stmt in front and not scaling.plain]
    return (
        bool(products)
        and len(products) + len(copies) == len(users)
        and all(_starts_from_zero(product, launch) for product in products)
    )


def _fills(stmt: Stmt, tile: Var) -> bool:
    return isinstance(stmt, Copy) and stmt.dst.buffer.same_as(tile) and not stmt.src.buffer.same_as(tile)


def _starts_from_zero(product: Gemm, launch: Launch) -> bool:
    """Whether a product's sum is nothing but that product, all of a float32 fragment."""
    total = product.c.buffer
    if str(total.dtype) != _SUM or total.scope() != "local.fragment" or not is_whole(product.c):
        return False
    if any(total.same_as(region.buffer) for region in (product.a, product.b)):
        return False
    if int_value(product.clear) == 1:
        return True
    block = next(block for block in _blocks(launch) if product in block)
    before = [stmt for stmt in block[: block.index(product)] if touches(stmt, total)]
    last = before[-1] if before else None
    cleared = isinstance(last, Fill) and is_whole(last.dst) and is_zero(last.value)
    return cleared and int_value(product.clear) == 0
