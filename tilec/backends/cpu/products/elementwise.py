"""Statements as work per element of a tile: the form in which an epilogue runs on register blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import cast_to, dtype_of, int_value, loads, same_all, substitute, uses
from tilec.ir.nodes import Bind, Block, Copy, If, Parallel, Region, Stmt, Store, walk
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from tvm import sym
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.nodes import MicroGemm

#: What an elementwise body is made of.
_PLAIN = (Store, Bind, If)


def per_element(stmt: Stmt, variables: tuple[Var, Var], extents: tuple[int, int]) -> Block | None:
    """``stmt`` as statements for element ``variables`` of a tile of ``extents``; None where it is not of that
    kind: a Parallel over the tile, or a Copy of a region of its shape."""
    if isinstance(stmt, Parallel):
        return _parallel(stmt, variables, extents)
    if isinstance(stmt, Copy):
        return _copied(stmt, variables, extents)
    return None


def _parallel(stmt: Parallel, variables: tuple[Var, Var], extents: tuple[int, int]) -> Block | None:
    if tuple(int_value(extent) for extent in stmt.extents) != extents:
        return None
    if not all(isinstance(inner, _PLAIN) for inner in walk(stmt.body)):
        return None
    values = {old: cast_to(new, dtype_of(old)) for old, new in zip(stmt.vars, variables, strict=True)}
    return map_expressions(stmt.body, lambda expr: substitute(expr, values))


def _copied(stmt: Copy, variables: tuple[Var, Var], extents: tuple[int, int]) -> Block | None:
    source = _element(stmt.src, variables, extents)
    target = _element(stmt.dst, variables, extents)
    if source is None or target is None:
        return None
    value, dtype = tirx.BufferLoad(stmt.src.buffer, list(source)), str(stmt.dst.buffer.dtype)
    if str(stmt.src.buffer.dtype) != dtype:
        value = tirx.Cast(dtype, value)
    return (Store(stmt.dst.buffer, target, value, loc=stmt.loc),)


def _element(region: Region, variables: tuple[Var, Var], extents: tuple[int, int]) -> tuple[Expr, ...] | None:
    """The indices of element ``variables`` of a region whose extents other than 1 are those of the tile."""
    moving = [(var, extent) for var, extent in zip(variables, extents, strict=True) if extent != 1]
    axes = [axis for axis, extent in enumerate(region.extent) if int_value(extent) != 1]
    if [int_value(region.extent[axis]) for axis in axes] != [extent for _, extent in moving]:
        return None
    indices = list(region.start)
    for axis, (var, _) in zip(axes, moving, strict=True):
        start = indices[axis]
        indices[axis] = var if int_value(start) == 0 else start + cast_to(var, dtype_of(start))
    return tuple(indices)


def map_expressions(block: Block, visit: Callable[[Expr], Expr]) -> Block:
    """An elementwise body with every expression replaced by ``visit`` of it."""
    return tuple(_mapped(stmt, visit) for stmt in block)


def _mapped(stmt: Stmt, visit: Callable[[Expr], Expr]) -> Stmt:
    if isinstance(stmt, Store):
        indices = tuple(visit(index) for index in stmt.indices)
        return replace(stmt, indices=indices, value=visit(stmt.value))
    if isinstance(stmt, Bind):
        return replace(stmt, value=visit(stmt.value))
    if isinstance(stmt, If):
        then, orelse = map_expressions(stmt.then, visit), map_expressions(stmt.orelse, visit)
        return replace(stmt, cond=visit(stmt.cond), then=then, orelse=orelse)
    raise TypeError(f"{type(stmt).__name__} is no part of an elementwise body")


def stores(block: Block) -> Iterator[Store]:
    """The stores of an elementwise body."""
    return (stmt for stmt in walk(block) if isinstance(stmt, Store))


def accesses(block: Block) -> Iterator[tuple[Var, tuple[Expr, ...]]]:
    """Buffer and indices of every element that an elementwise body reads or writes."""
    for stmt in walk(block):
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices
        for expr in expressions(stmt):
            yield from ((load.source, tuple(load.indices)) for load in loads(expr))


def is_pointwise(body: Block, gemm: MicroGemm, sums: Iterable[Var], analyzer: sym.Analyzer) -> bool:
    """Whether every buffer that ``body`` writes for the elements of ``gemm``, ``sums`` among them, is touched
    at one place per element, another one for every element."""
    places: dict[Var, tuple[Expr, ...]] = dict.fromkeys(sums, gemm.vars)
    for store in stores(body):
        places.setdefault(store.buffer, store.indices)
    if not all(_is_injective(indices, gemm, analyzer) for indices in places.values()):
        return False
    return all(same_all(indices, places[buffer]) for buffer, indices in accesses(body) if buffer in places)


def _is_injective(indices: tuple[Expr, ...], gemm: MicroGemm, analyzer: sym.Analyzer) -> bool:
    """Whether no two elements have the same ``indices``: row and column each are an index but for a shift."""
    long = [var for var, extent in zip(gemm.vars, gemm.c.extent[-2:], strict=True) if int_value(extent) != 1]
    return all(any(_is_shifted(index, var, gemm, analyzer) for index in indices) for var in long)


def _is_shifted(index: Expr, var: Var, gemm: MicroGemm, analyzer: sym.Analyzer) -> bool:
    wide = tirx.Cast(dtype_of(index), var) if dtype_of(index) != dtype_of(var) else var
    return not uses(analyzer.simplify(index - wide), set(gemm.vars))
