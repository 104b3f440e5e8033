"""Deferred reductions, whose values are given inside T.Parallel, and tests over a whole tile."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.nodes import is_global
from tilec.ir.nodes.threads import PER_THREAD
from tilec.language.tiles.memory.allocations import alloc_fragment, alloc_local
from tilec.language.tiles.memory.boxes import same, sized_box
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.tiles.operations.copies import copy, fill
from tilec.language.tiles.operations.reductions import combine, identity
from tilec.language.tiles.operations.tile_loops import element_at, long_extents, over
from tilec.language.values.conversions import condition
from tilec.language.values.functions.intrinsics import FUNCTIONS
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.value import Value, resolve

_OPERATIONS = ("sum", "max", "min", "bitand", "bitor", "bitxor")


class Reducer(Buffer):
    """A fragment that takes values in by ``operation``."""

    operation: str


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Reducer:
    """A fragment that collects values: sum, max, min, bitand, bitor or bitxor of them. For max and min NaN
    does not count; accumulate with ``T.max(..., nan_propagate=True)`` into a plain fragment to keep it.

    ``replication`` marks the older form, which is accumulated in place; a hint. Raises `SourceValueError` for
    operations and replications that do not exist."""
    if op not in _OPERATIONS or replication not in (None, "all", "none"):
        raise source_error(
            SourceValueError,
            f"T.alloc_reducer(op={op!r}, replication={replication!r})",
            construct="T.alloc_reducer",
            remedy=f"use one of {', '.join(_OPERATIONS)}; replication is all or none",
        )
    tile = alloc_fragment(shape, dtype)
    reducer = Reducer(tile.var, tile.shape, frame=tile.frame)
    reducer.operation = op
    return reducer


def reducer_init(acc: Reducer, init: Any = None) -> None:
    """Start over: at ``init``, which counts once, or at what changes nothing."""
    reducer = _reducer(acc, "T.reducer_init")
    fill(reducer, identity(reducer.operation, reducer.dtype) if init is None else init)


def reducer_update(element: Element, value: Any) -> None:
    """Take ``value`` into an element of a reducer, once per iteration of the T.Parallel around it."""
    buffer = element.buffer if isinstance(element, Element) else None
    reducer = _reducer(buffer, "T.reducer_update")
    if sessions.builder("T.reducer_update").is_per_thread():
        raise unsupported(
            "T.reducer_update outside T.Parallel",
            why="every thread of the block runs this statement, so the effect multiplies",
            remedy="put it in T.Parallel",
        )
    assert isinstance(element, Element)
    element.store(combine(reducer.operation, element, cast_value(value, reducer.dtype)))


def finalize_reducer(acc: Reducer, dst: Any = None, batch: int = 1) -> None:
    """The values are all in: copy the results to ``dst``, or leave them in ``acc``."""
    reducer = _reducer(acc, "T.finalize_reducer")
    if dst is not None:
        copy(reducer, dst)


def any_of(tile: Any) -> Value:
    """Whether any element of a shared tile, fragment or region is true (not 0)."""
    return _tested("T.any_of", tile, 0, "max")


def all_of(tile: Any) -> Value:
    """Whether all elements of a shared tile, fragment or region are true (not 0)."""
    return _tested("T.all_of", tile, 1, "min")


def _reducer(acc: Any, construct: str) -> Reducer:
    found = resolve(acc)
    if isinstance(found, Reducer):
        return found
    raise source_error(
        SourceTypeError,
        f"{construct} takes what T.alloc_reducer gave, not {found!r}",
        construct=construct,
        remedy="allocate it with T.alloc_reducer",
    )


def _tested(construct: str, tile: Any, start: int, extreme: str) -> Value:
    box = sized_box(tile, construct)
    long = [axis for axis, extent in enumerate(box.extents or ()) if not same(extent, 1)]
    if is_global(box.buffer) or (not box.whole and long not in ([], [len(box.starts) - 1])):
        raise source_error(
            SourceValueError,
            f"{construct} of {box.buffer.name}",
            construct=construct,
            why="it takes a tile on the chip, or a region of one along its last axis",
            remedy="copy the region into a tile first",
        )
    own = box.buffer.scope() in PER_THREAD or sessions.builder(construct).is_in_parallel
    found = alloc_local((1,), "int32") if own else alloc_fragment((1,), "int32")
    fill(found, start)

    def body(*at: Value) -> None:
        truth = cast_value(Value(condition(element_at(box, at), construct)), found.dtype)
        found.element((wrap(0).expr,)).store(FUNCTIONS[extreme](found[0], truth))

    over(long_extents(box), body)
    return wrap(found[0] != 0)
