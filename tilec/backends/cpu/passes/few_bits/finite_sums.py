"""Sums that take the place of a loop's product where they are finite; the others are made in another way.

A scale that multiplies sums of numbers makes infinities, or NaN, of what it would make the other of number by
number: an infinite one times numbers of which one is 0 is NaN, times their sum infinity. Whatever is infinite
or NaN of what sums are made of, they are not finite either.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.passes.few_bits.group_tiles import are_near, far_mark, new_tile
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import int32, int_value
from tilec.ir.nodes import Alloc, If, Parallel, Reduce, Store

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Stmt


def if_finite_sums(result: Var, added: Stmt, other: Stmt) -> list[Stmt]:
    """``added``, which adds the sums of a ``result`` of two axes to those of a product, where all of them are
    finite, else the ``other`` statement that makes them: the loop as it was, or one of weights one by one."""
    rows, columns = (int_value(extent) or 1 for extent in result.shape)
    far, found = new_tile("far", 1), new_tile("found", rows * columns)
    row, column = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    mark = far_mark(tirx.BufferLoad(result, [row, column]), math.inf)
    store = Store(found, (row * columns + column,), mark, loc=added.loc)
    return [
        *(Alloc(tile, loc=added.loc) for tile in (far, found)),
        Parallel((row, column), (int32(rows), int32(columns)), (store,), loc=added.loc),
        Reduce("max", whole_region(found), whole_region(far), 0, True, loc=added.loc),
        If(are_near(far), (added,), (other,), loc=added.loc),
    ]
