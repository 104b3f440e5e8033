"""Reductions and scans of tiles."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.nodes import is_global
from tilec.ir.reductions import REDUCTIONS
from tilec.language.tiles.memory.boxes import Box, same, sized_box
from tilec.language.tiles.memory.views import View
from tilec.language.tiles.operations.stage_operands import reduce_copies, scan_copies
from tilec.language.tiles.operations.tile_loops import over
from tilec.language.values.functions import intrinsics
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import check_annotations
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.operands import cast_value, wrap
from tilec.language.values.value import Value
from tilec.spelling import counted

#: Where reductions begin at an end of a type: of floats, and the function that gives it of integers.
_ENDS = {"lowest": (float("-inf"), "min_value"), "highest": (float("inf"), "max_value")}


def reduce_sum(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, annotations: Any = None
) -> None:
    """Sum along ``dim`` into ``out``, whose dtype accumulates; ``clear=False`` adds to what ``out`` holds."""
    _reduce("sum", buffer, out, dim, clear, batch, annotations=annotations)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Maximum along ``dim``; ``clear=False`` keeps what ``out`` holds as one more value. NaN does not count
    (of NaN alone the result is -inf); with ``nan_propagate`` one NaN makes the result NaN."""
    _reduce("max", buffer, out, dim, clear, batch, nan_propagate, annotations=annotations)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Minimum along ``dim`` (of NaN alone +inf); otherwise as `reduce_max`."""
    _reduce("min", buffer, out, dim, clear, batch, nan_propagate, annotations=annotations)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Maximum of absolute values along ``dim`` (of NaN alone 0); otherwise as `reduce_max`."""
    _reduce("absmax", buffer, out, dim, clear, batch, nan_propagate, annotations=annotations)


def reduce_abssum(buffer: Any, out: Any, dim: int = -1, batch: int = 1, annotations: Any = None) -> None:
    """Sum of absolute values along ``dim``; replaces what ``out`` holds."""
    _reduce("abssum", buffer, out, dim, True, batch, annotations=annotations)


def reduce_bitand(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, annotations: Any = None
) -> None:
    """Bitwise and of integers along ``dim``; otherwise as `reduce_sum`."""
    _reduce("bitand", buffer, out, dim, clear, batch, annotations=annotations)


def reduce_bitor(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, annotations: Any = None
) -> None:
    """Bitwise or of integers along ``dim``; otherwise as `reduce_sum`."""
    _reduce("bitor", buffer, out, dim, clear, batch, annotations=annotations)


def reduce_bitxor(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, annotations: Any = None
) -> None:
    """Bitwise exclusive or of integers along ``dim``; otherwise as `reduce_sum`."""
    _reduce("bitxor", buffer, out, dim, clear, batch, annotations=annotations)


def reduce(
    buffer: Any, out: Any, reduce_type: str, dim: int, clear: bool, batch: int = 1, annotations: Any = None
) -> None:
    """The reduction named by ``reduce_type``: one of `tilec.ir.nodes.REDUCE_KINDS`."""
    if reduce_type not in ir.REDUCE_KINDS:
        raise source_error(
            SourceValueError,
            f"T.reduce: {reduce_type!r} is no reduction",
            construct="T.reduce",
            remedy=f"use one of {', '.join(ir.REDUCE_KINDS)}",
        )
    check_annotations("T.reduce", annotations)
    _reduce(reduce_type, buffer, out, dim, clear, batch)


def cumsum(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: Any = None) -> None:
    """Running sums along ``dim``, in ``src`` itself or into ``dst``, whose dtype accumulates; ``reverse``
    starts at the end. Shared tiles and fragments of one shape; `SourceValueError` otherwise."""
    check_annotations("T.cumsum", annotations)
    _scan("sum", "T.cumsum", src, dst, dim, reverse)


def cummax(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: Any = None) -> None:
    """Running maxima along ``dim``, otherwise as `cumsum`. NaN does not count; a loop over the axis with
    ``T.max(..., nan_propagate=True)`` keeps it."""
    check_annotations("T.cummax", annotations)
    _scan("max", "T.cummax", src, dst, dim, reverse)


def _reduce(
    kind: str,
    buffer: Any,
    out: Any,
    dim: int,
    clear: bool,
    batch: int,
    nan: bool = False,
    annotations: Any = None,
) -> None:
    name = f"T.reduce_{kind}"
    check_annotations(name, annotations)
    src, dst = sized_box(buffer, name), sized_box(out, name)
    _check_scopes(name, src, dst)
    if REDUCTIONS[kind].is_bitwise and not _are_integers(src, dst):
        raise source_error(
            SourceValueError,
            f"{name} of {src.buffer.dtype} into {dst.buffer.dtype}",
            construct=name,
            why="only integers have bits to combine",
            remedy="use an integer dtype, or T.reduce_max and T.reduce_min",
        )
    _check_counts(name, dst)
    if batch < 1:
        raise source_error(
            SourceValueError,
            f"{name}: batch={batch} is not positive",
            construct=name,
            remedy="give 1 or more",
        )
    axis = _axis(name, src, dim)
    views = isinstance(src.buffer, View) or isinstance(dst.buffer, View)
    signed = kind == "absmax" and not clear
    if not _is_reduced(name, src, dst, axis) or (views and (nan or signed)):
        return reduce_copies(kind, src, dst, axis, bool(clear), bool(nan))
    if views:
        return _reduce_view(kind, src, dst, axis, bool(clear))
    stmt = ir.Reduce(kind, src.region(), dst.region(), axis, bool(clear), bool(nan), loc=loc())
    return sessions.builder(name).emit(stmt, name)


def _reduce_view(kind: str, src: Box, dst: Box, axis: int, clear: bool) -> None:
    """A loop whose iterations accumulate, after a fill with the identity where it clears."""
    if clear:
        start = identity(kind, dst.buffer.dtype)
        over(dst.extents or (), lambda *at: dst.buffer.element(_places(dst, at)).store(start))

    def body(*at: Value) -> None:
        kept = [place for position, place in enumerate(at) if position != axis]
        if len(dst.starts) == len(at):
            kept.insert(axis, wrap(0))
        result = dst.buffer.element(_places(dst, tuple(kept) or (wrap(0),)))
        term = cast_value(src.buffer.element(_places(src, at)), dst.buffer.dtype)
        result.store(combine(kind, result, term))

    return over(src.extents or (), body)


def _places(box: Box, at: tuple[Value, ...]) -> tuple[Any, ...]:
    return tuple(sessions.simplify(start + place.expr) for start, place in zip(box.starts, at, strict=True))


def combine(kind: str, old: Value, term: Value, nan: bool = False) -> Any:
    """One step of a reduction; ``nan``: of maxima and minima NaN stays."""
    row = REDUCTIONS[kind]
    term = intrinsics.FUNCTIONS["abs"](term) if row.magnitudes else term
    if row.join == "sum":
        return old + term
    if row.is_bitwise:
        return {"bitand": old & term, "bitor": old | term, "bitxor": old ^ term}[row.join]
    return intrinsics.extreme(row.join, old, term, nan)


def identity(kind: str, to: Any) -> Any:
    """The number that a reduction of ``to`` elements starts at."""
    start = REDUCTIONS[kind].start
    if to == "bool":
        return start in ("highest", "ones")
    if start == "ones":
        return -1
    if start == "zero":
        return 0
    infinity, end = _ENDS[start]
    return infinity if to.row.is_float else intrinsics.FUNCTIONS[end](to)


def _scan(kind: str, name: str, source: Any, target: Any, dim: int, reverse: bool) -> None:
    src = sized_box(source, name)
    dst = src if target is None else sized_box(target, name)
    _check_scopes(name, src, dst)
    _check_counts(name, dst)
    axis = _axis(name, src, dim)
    given, found = src.extents or (), dst.extents or ()
    if len(given) != len(found) or not all(map(same, given, found)):
        raise source_error(
            SourceValueError,
            f"{name}: {dst.buffer.name} has shape {tuple(found)}, {src.buffer.name} has {tuple(given)}",
            construct=name,
            remedy="give both one shape",
        )
    if isinstance(src.buffer, View) or isinstance(dst.buffer, View):
        return scan_copies(kind, src, dst, axis, bool(reverse))
    stmt = ir.Scan(kind, src.region(), dst.region(), axis, bool(reverse), loc=loc())
    return sessions.builder(name).emit(stmt, name)


def _check_scopes(name: str, *operands: Box) -> None:
    for operand in operands:
        if is_global(operand.buffer):
            raise source_error(
                SourceValueError,
                f"{name}: {operand.buffer.name} is in global memory",
                construct=name,
                remedy="copy it into a fragment first",
            )


def _check_counts(name: str, result: Box) -> None:
    """Results are numbers: truths have no sum, and their extremes are conditions."""
    if result.buffer.dtype == "bool":
        raise source_error(
            SourceValueError,
            f"{name}: {result.buffer.name} is bool",
            construct=name,
            remedy="give it an integer dtype such as int32; T.any_of and T.all_of look at all of a tile",
        )


def _are_integers(*operands: Box) -> bool:
    return all(operand.buffer.dtype.row.is_integer for operand in operands)


def _axis(name: str, src: Box, dim: int) -> int:
    rank = len(src.starts)
    if not -rank <= dim < rank:
        raise source_error(
            SourceValueError,
            f"{name}: dim={dim} is out of range for {counted(rank, 'axis', 'axes')}",
            construct=name,
            remedy="axes count from 0; negative ones count from the end",
        )
    return dim % rank


def _is_reduced(name: str, src: Box, dst: Box, axis: int) -> bool:
    """Whether ``dst`` has the extents of ``src`` without ``axis``, or 1 there; False where a region has them
    but for further axes of one element. Raises `SourceValueError` for other extents."""
    given, found = list(src.extents or ()), list(dst.extents or ())
    kept = [*given[:axis], 1, *given[axis + 1 :]]
    dropped = given[:axis] + given[axis + 1 :] or [1]
    if _alike(found, kept) or _alike(found, dropped):
        return True
    if not (src.whole and dst.whole) and _alike(_long(found), _long(dropped)):
        return False
    raise source_error(
        SourceValueError,
        f"{name}: {dst.buffer.name} has shape {tuple(found)}",
        construct=name,
        why=f"{src.buffer.name} has shape {tuple(given)}, so without axis {axis} it must be {tuple(dropped)} "
        f"or {tuple(kept)}",
        remedy="allocate the result with one of these shapes",
    )


def _alike(extents: list[Any], others: list[Any]) -> bool:
    return len(extents) == len(others) and all(map(same, extents, others))


def _long(extents: list[Any]) -> list[Any]:
    return [extent for extent in extents if not same(extent, 1)]
