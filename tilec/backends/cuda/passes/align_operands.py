"""Operands whose rows TMA cannot take are copied to rows that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx

from tilec.backends.cuda.analysis.unaligned_operands import unaligned_operands
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, Copy, If, Kernel, Launch, Parallel, Region, Stmt, Store
from tilec.ir.options import NO_ROLES
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

Grid: TypeAlias = "tuple[tuple[Expr, ...], tuple[Var, ...], Block]"
#: Bytes of a line of the L2 cache, by which TMA brings most.
_LINE = 128
#: Rows, and elements of a row, that a block copies; its threads.
_ROWS, _COLUMNS, _THREADS = 8, 512, 256
#: What a block of that launch has.
_PLACES = ("row_block", "column_block", "matrix")


class AlignOperands(Pass):
    """In: products of tiles that are copied from tensors. Out: where rows of such a tensor are not known to
    start at multiples of 16 bytes, and several blocks may share its elements, a launch in front copies it to
    the workspace of the call, to rows of whole lines with zeros behind their ends, and the products are those
    of the copy. Each block would have to shift what it shares with others else (8191 x 8190 x 8189 in float16
    on an H200: 1750 us, of which the copies are 143, and 5850)."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with launches that align what others multiply."""
        if kernel.option(NO_ROLES) is not None:
            return kernel
        body: list[Stmt] = []
        for stmt in kernel.body:
            body += _aligned(kernel, stmt) if isinstance(stmt, Launch) else (stmt,)
        return replace(kernel, body=tuple(body))


def _aligned(kernel: Kernel, launch: Launch) -> Block:
    """A launch behind one that aligns its operands."""
    made = {source: _padded(source) for source in unaligned_operands(kernel, launch)}
    if not made:
        return (launch,)
    schedule = Schedule(pdl=launch.schedule.pdl)
    return (*map(Alloc, made.values()), _copies(made, schedule), _reading(launch, made))


def _padded(source: Var) -> Var:
    """A tensor of the workspace for the copy."""
    count = _LINE // element_bytes(str(source.dtype))
    shape = (*source.shape[:-1], _parts(source.shape[-1], count) * count)
    return tirx.decl_buffer(shape, str(source.dtype), f"{source.name}_aligned", scope="global.workspace")


def _parts(extent: Expr, size: int) -> Expr:
    dtype = dtype_of(extent)
    return (extent + tirx.const(size - 1, dtype)) // tirx.const(size, dtype)


# ---- the launch that copies ----


def _copies(made: Mapping[Var, Var], schedule: Schedule) -> Launch:
    """A launch that copies tensors to others. Quotients would take longer than the copy: blocks have axes."""
    batched = any(len(target.shape) > 2 for target in made.values())
    grid, blocks, body = (_by_matrix if batched else _side_by_side)(made)
    return Launch(grid, blocks, (_THREADS, 1, 1), body, schedule)


def _by_matrix(made: Mapping[Var, Var]) -> Grid:
    """Blocks have rows, columns, and the matrices of all tensors, of which each has as many blocks as the
    largest: the last axis for that of which there may be most."""
    shapes = [target.shape for target in made.values()]
    rows = reduce(tirx.max, (_parts(shape[-2], _ROWS) for shape in shapes))
    columns = reduce(tirx.max, (_parts(shape[-1], _COLUMNS) for shape in shapes))
    ends = list(accumulate(prod(shape[:-2], start=tirx.const(1, dtype_of(shape[-1]))) for shape in shapes))
    row, column, matrix = (tirx.Var(name, dtype_of(rows)) for name in _PLACES)
    body: Block = ()
    for (source, target), start, end in reversed([*zip(made.items(), (0, *ends), ends, strict=False)]):
        own = (_copy(source, target, matrix - start, row, column),)
        body = (If(matrix < end, own, body),) if body else own
    return (ends[-1], columns, rows), (matrix, column, row), body


def _side_by_side(made: Mapping[Var, Var]) -> Grid:
    """The matrices follow one another along their longer sides, be these rows or columns: shapes may have
    little in common (with rows and columns of both along the axes 7 x 15480 and 15480 x 319 would be 120000
    blocks, of which 2000 have anything to do, and took 130 us)."""
    sides = [
        (_parts(target.shape[-2], _ROWS), _parts(target.shape[-1], _COLUMNS)) for target in made.values()
    ]
    ends = list(accumulate(reduce(tirx.max, side) for side in sides))
    along, across = (tirx.Var(name, dtype_of(ends[0])) for name in ("along", "across"))
    body: Block = ()
    for (source, target), (rows, columns), start, end in reversed(
        [*zip(made.items(), sides, (0, *ends), ends, strict=False)]
    ):
        place = along - start
        tall = _copy(source, target, place, place, across)
        wide = _copy(source, target, place, across, place)
        own = (If(columns <= rows, (tall,), (wide,)),)
        body = (If(along < end, own, body),) if body else own
    grid = (ends[-1], reduce(tirx.max, (reduce(tirx.min, side) for side in sides)))
    return grid, (along, across), body


def _copy(source: Var, target: Var, matrix: Expr, row_block: Expr, column_block: Expr) -> Parallel:
    """The part of a block: what lies behind the ends of rows is read as 0."""
    row, column = tirx.Var("row", "int32"), tirx.Var("column", "int32")
    at = [*_matrix(source.shape[:-2], matrix), row_block * _ROWS + row, column_block * _COLUMNS + column]
    store = Store(target, tuple(at), tirx.BufferLoad(source, at))
    return Parallel((row, column), (_ROWS, _COLUMNS), (store,))


def _matrix(extents: Sequence[Expr], number: Expr) -> list[Expr]:
    """The indices of a matrix by its number."""
    indices: list[Expr] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, number % extent)
        number = number // extent
    return [number, *indices] if len(extents) else []


# ---- the launch that multiplies ----


def _reading(launch: Launch, made: Mapping[Var, Var]) -> Launch:
    """A launch whose copies read what was aligned."""

    def rewrite(block: Block) -> list[Stmt]:
        return [_redirected(stmt, made) for stmt in block]

    names = ", ".join(str(source.name) for source in made)
    note = (
        f"rows of {names} are not known to start at multiples of 16 bytes: a launch in front copies them "
        'to the workspace; a guard of their extent such as "%8" spares it'
    )
    return with_notes(replace(launch, body=rewrite_blocks(launch.body, rewrite)), [note])


def _redirected(stmt: Stmt, made: Mapping[Var, Var]) -> Stmt:
    if not isinstance(stmt, Copy) or stmt.src.buffer not in made:
        return stmt
    return replace(stmt, src=Region(made[stmt.src.buffer], stmt.src.start, stmt.src.extent))
