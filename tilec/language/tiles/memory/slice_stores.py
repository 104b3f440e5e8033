"""``A[i:i + 4] = value``: a slice as the place that a vector, a scalar or another slice is stored to.

A vector fills the elements one after the other, a scalar all of them. Slices are copied as `T.copy` copies
them; where the statement is one of each thread, element by element, cast as stores cast.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceTypeError, SourceValueError
from tilec.language.control.loops import serial, vectorized
from tilec.language.tiles.memory.boxes import Box, box, same
from tilec.language.tiles.memory.buffers import SLICE_OPERATIONS, Buffer, Element, Slice
from tilec.language.tiles.memory.lane_stores import store_lanes
from tilec.language.tiles.operations.copies import copy, fill
from tilec.language.tiles.operations.tile_loops import element_at, long_extents
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import expression
from tilec.language.values.value import Loaded, Value, Vector, Word
from tilec.language.values.vectors import reinterpret_bits
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.scalars import dtype

#: The longest vector of the language.
_LANES = 64


def store_slice(target: Slice, value: Any) -> None:
    """Adds the statements of ``target = value``. `SourceValueError` where they are of different sizes."""
    if isinstance(value, Word) and value.kind.bits < value.dtype.bits:
        value = Loaded((value,), value.kind)
    if isinstance(value, Vector):
        return _store_vector(target, value)
    if isinstance(value, (Buffer, Slice)):
        return _store_tile(box(target, "a slice"), box(value, "a slice"))
    if _of_the_block((*target.starts,)):
        return fill(target, value)
    place = box(target, "a slice")
    return _over(place, lambda *at: element_at(place, at).store(value))


def vector_of(region: Slice) -> Vector:
    """The elements of a slice as one vector, to compute with. `SourceTypeError` unless they are a power of
    two of at most 64."""
    places = _elements(region)
    if len(places) < 2 or len(places) > _LANES or len(places) & (len(places) - 1):
        raise source_error(
            SourceTypeError,
            f"a slice of {len(places) or 'run-time many'} elements of {region.buffer.name} is no operand",
            why=f"vectors have 2, 4, ... {_LANES} lanes",
            remedy="compute with elements, A[i, j], in a T.Parallel loop",
        )
    return Vector(tuple(places))


def _store_vector(target: Slice, value: Vector) -> None:
    places = _elements(target)
    lanes = _lanes_for(value, target.buffer.dtype, len(places))
    store_lanes(places, lanes)


def _lanes_for(value: Vector, kind: dtype, count: int) -> Sequence[Any]:
    """A value for each of ``count`` elements of ``kind``: the lanes, cast; or, of bits that were loaded from
    memory or that make up as many bytes in other pieces, the same bits."""
    loaded = value.kind if isinstance(value, Loaded) else None
    bits = sum(lane.dtype.bits for lane in value.lanes)
    is_words = loaded is None or loaded.row.is_integer or kind in ("int32", "uint32")
    if bits == count * kind.bits and (loaded == kind or len(value.lanes) != count):
        made = reinterpret_bits(value, type(kind)(kind if count == 1 else f"{kind}x{count}"))
        return made.lanes if isinstance(made, Vector) else (made,)
    if len(value.lanes) == count and is_words:
        return value.lanes
    raise _mismatch(value, kind, count, loaded)


def _mismatch(value: Vector, kind: dtype, count: int, loaded: dtype | None) -> SourceError:
    what = (
        f"a vector of {counted(len(value.lanes), 'lane')} is stored to a slice of {count or 'run-time many'}"
    )
    if loaded is None or len(value.lanes) != count:
        return source_error(SourceValueError, what, remedy="give the slice as many elements")
    return source_error(
        SourceValueError,
        f"bits of {loaded} are stored to a slice of {kind}",
        why="they would be converted as the integers that they make up",
        remedy=f"T.reinterpret them as {loaded} first, or use T.copy",
    )


def _elements(region: Slice) -> list[Element]:
    """The elements in row-major order; none where their number is not known."""
    if not all(isinstance(extent, int) for extent in region.extents):
        return []
    offsets = itertools.product(*(range(extent) for extent in region.extents))
    return [region.buffer.element(_moved(region.starts, offset)) for offset in offsets]


def _moved(starts: Sequence[Expr], offset: Sequence[int]) -> tuple[Expr, ...]:
    pairs = zip(starts, offset, strict=True)
    return tuple(sessions.simplify(start + expression(step)) if step else start for start, step in pairs)


def _store_tile(target: Box, source: Box) -> None:
    ours, theirs = long_extents(target), long_extents(source)
    if len(ours) != len(theirs) or not all(map(same, ours, theirs)):
        raise source_error(
            SourceValueError,
            f"a tile of {_shown(theirs)} is assigned to a slice of {_shown(ours)}",
            remedy="give both the same extents; T.copy takes them from the faster memory",
        )
    if _of_the_block((*target.starts, *source.starts)):
        return copy(_slice(source), _slice(target))
    return _over(target, lambda *at: element_at(target, at).store(element_at(source, at)))


def _slice(side: Box) -> Slice:
    assert side.extents is not None
    return Slice(side.buffer, side.starts, side.extents)


def _of_the_block(starts: Sequence[Expr]) -> bool:
    """Whether a statement at these places is one of the whole block: in no iteration of T.Parallel, and at no
    place that may depend on the thread."""
    from tvm.ir import Var

    from tilec.ir.exprs import walk

    builder = sessions.builder("a slice")
    kernel = builder.kernel
    if kernel is None or builder.is_in_parallel:
        return False
    uniform = set(kernel.launch.vars)
    found = (node for start in starts for node in walk(start))
    return not kernel.launch.names_threads or not any(
        isinstance(node, Var) and node not in uniform for node in found
    )


def _over(place: Box, body: Any) -> None:
    """Loops over the elements of one thread, the last one of lanes where its extent is known."""
    extents = long_extents(place)
    fixed = isinstance(extents[-1], int)
    sizes = [extent if isinstance(extent, int) else Value(extent) for extent in extents]
    nests = [serial(size) for size in sizes[:-1]] + [(vectorized if fixed else serial)(sizes[-1])]
    places = [nest.open() for nest in nests]
    body(*places)
    for nest in reversed(nests):
        nest.close()


def _shown(extents: Sequence[Any]) -> str:
    return "x".join(map(str, extents))


SLICE_OPERATIONS.update(store=store_slice, vector=vector_of)
