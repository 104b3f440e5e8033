"""Loops that store to every element of a tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.ir.exprs import int_value, same_all

if TYPE_CHECKING:
    from tilec.ir.nodes import Store


def stores_each(store: Store, loop: Any) -> bool:
    """Whether the iterations of a loop (with ``vars`` and ``extents``) store to each element of a tile: each
    index is a variable of its own, which has as many values as the axis; of an axis of one element, it is 0
    or a variable with that one value."""
    extents = {var: int_value(extent) for var, extent in zip(loop.vars, loop.extents, strict=True)}
    sizes = [int_value(size) for size in store.buffer.shape]
    places = list(zip(store.indices, sizes, strict=True))
    long = {index: size for index, size in places if size != 1}
    if len(long) != sum(size != 1 for size in sizes):
        return False
    only = (int_value(index) == 0 or extents.get(index) == 1 for index, size in places if size == 1)
    return all(extents.get(index) == size is not None for index, size in long.items()) and all(only)


def stores_each_in_order(store: Store, loop: Any) -> bool:
    """The same, the variables of the loop being the indices in their order."""
    return same_all(tuple(store.indices), tuple(loop.vars)) and stores_each(store, loop)
