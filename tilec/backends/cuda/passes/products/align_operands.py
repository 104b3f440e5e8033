"""Operands whose rows TMA cannot take are copied to rows that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.whole_lines import in_whole_lines, num_pieces
from tilec.backends.cuda.analysis.products.unaligned_operands import unaligned_operands
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Assume, Bind, Block, Copy, If, Kernel, Launch, Parallel, Region, Stmt, Store
from tilec.ir.options import NO_ROLES
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Rows, and elements of a row, that a block copies; its threads.
_ROWS, _COLUMNS, _THREADS = 8, 512, 256


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
    sources = unaligned_operands(kernel, launch)
    made = {each: in_whole_lines(f"{each.name}_aligned", each, each.shape) for each in sources}
    if not made:
        return (launch,)
    schedule = Schedule(pdl=launch.schedule.pdl)
    return (*map(Alloc, made.values()), _copies(made, schedule), _reading(launch, made))


# ---- the launch that copies ----


def _copies(made: Mapping[Var, Var], schedule: Schedule) -> Launch:
    """A launch that copies tensors to others. The blocks of one follow those of another, so that each has
    something to copy, whatever shapes have in common (H200, 429 x 20563 and 20563 x 148 in float16: with an
    axis of the grid for longer sides and one for shorter, there were 108000 blocks, which took 150 us)."""
    pieces = [_Pieces(source, target) for source, target in made.items()]
    ends = list(accumulate(piece.count for piece in pieces))
    block = tirx.Var("block", dtype_of(ends[-1]))
    body: Block = ()
    for piece, start, end in reversed([*zip(pieces, (0, *ends), ends, strict=False)]):
        own = piece.copy(block - start)
        body = (If(block < end, own, body),) if body else own
    return Launch((ends[-1],), (block,), (_THREADS, 1, 1), body, schedule)


class _Pieces:
    """What blocks copy of a tensor: a few rows of a stretch of columns each."""

    def __init__(self, source: Var, target: Var) -> None:
        self._source, self._target = source, target
        *self._batch, rows, columns = target.shape
        self._rows, self._columns = num_pieces(rows, _ROWS), num_pieces(columns, _COLUMNS)
        self.count = prod(self._batch, start=self._rows * self._columns)

    def copy(self, number: Expr) -> Block:
        """A piece by its number. Quotients of what is read are computed once, and not again for each element,
        which takes longer than to copy them. What lies behind the ends of rows is read as 0."""
        cell = tirx.decl_buffer((1,), "int32", "number", scope="local.var")
        zero = tirx.const(0, "int32")
        piece = Bind(tirx.Var("piece", "int32"), tirx.BufferLoad(cell, [zero]))
        stretch = _named("stretch", tirx.truncmod(piece.var, self._columns))
        bands = _named("bands", tirx.truncdiv(piece.var, self._columns))
        band = _named("band", tirx.truncmod(bands.var, self._rows))
        matrix = _named("matrix", tirx.truncdiv(bands.var, self._rows))
        row, column = tirx.Var("row", "int32"), tirx.Var("column", "int32")
        at = [
            *_indices(self._batch, matrix.var),
            (band if self._batch else bands).var * _ROWS + row,
            stretch.var * _COLUMNS + column,
        ]
        store = Store(self._target, tuple(at), tirx.BufferLoad(self._source, at))
        return (
            *(Alloc(cell), Store(cell, (zero,), tirx.Cast("int32", number)), piece, Assume(piece.var >= 0)),
            *(stretch, bands, *([band, matrix] if self._batch else [])),
            Parallel((row, column), (_ROWS, _COLUMNS), (store,)),
        )


def _named(name: str, value: Expr) -> Bind:
    return Bind(tirx.Var(name, dtype_of(value)), value)


def _indices(extents: Sequence[Expr], number: Expr) -> list[Expr]:
    """The indices of a matrix by its number."""
    indices: list[Expr] = []
    for extent in reversed(extents[1:]):
        indices.insert(0, tirx.truncmod(number, extent))
        number = tirx.truncdiv(number, extent)
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
