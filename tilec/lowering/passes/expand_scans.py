"""Scan as a running value along the axis.

scan_sum(g[0:+16, 0:+2], g[0:+16, 0:+2], axis=0)
->
for j in parallel(2): running = 0; for k in serial(0, 16): running = running + g[k, j]; g[k, j] = running
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import as_expr, cast_to, dtype_of
from tilec.ir.nodes import Alloc, Block, For, Parallel, Region, Scan, Stmt, Store
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.passes.expand_copies import add, is_single

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var


@dataclass(frozen=True)
class ExpandScans(BlockPass):
    """In: Scan. Out: none of them; each is a loop of ``kind`` along its axis that carries a local.var, inside
    a Parallel over the other axes of more than one element. Sums of small floats are carried in float32 and
    rounded where they are stored. A row is read before it is written, element by element, so a scan in place
    needs no copy."""

    kind: str = "serial"

    def block(self, block: Block) -> list[Stmt]:
        """The block without Scan."""
        return [new for stmt in block for new in self._expanded(stmt)]

    def _expanded(self, stmt: Stmt) -> Block:
        return _expand(stmt, self.kind) if isinstance(stmt, Scan) else (stmt,)


def _expand(stmt: Scan, kind: str) -> Block:
    others = [
        axis for axis, extent in enumerate(stmt.src.extent) if axis != stmt.axis and not is_single(extent)
    ]
    extents = tuple(stmt.src.extent[axis] for axis in others)
    variables = tuple(
        tirx.Var(f"r{axis}", _index_type(extent)) for axis, extent in zip(others, extents, strict=True)
    )
    line = _along(stmt, dict(zip(others, variables, strict=True)), kind)
    return (Parallel(variables, extents, line, loc=stmt.loc),) if variables else line


def _along(stmt: Scan, others: Mapping[int, Var], kind: str) -> Block:
    """The scan of one line; ``others`` are its places on the other axes."""
    extent = stmt.src.extent[stmt.axis]
    counts = _index_type(extent)
    step = tirx.Var("k", counts)
    length = as_expr(extent, counts)
    place = length - 1 - step if stmt.reverse else step
    places = {**others, stmt.axis: place}
    dtype = str(stmt.dst.buffer.dtype)
    held = compute_type(dtype) if stmt.kind == "sum" else dtype
    running = tirx.decl_buffer((1,), held, "running", scope="local.var")
    element = (tirx.const(0, "int32"),)
    so_far = tirx.BufferLoad(running, list(element))
    term = cast_to(tirx.BufferLoad(stmt.src.buffer, list(_indices(stmt.src, places))), dtype)
    term = cast_to(term, held)
    combine = tirx.Add if stmt.kind == "sum" else tirx.Max
    body = (
        Store(running, element, combine(so_far, term), loc=stmt.loc),
        Store(stmt.dst.buffer, _indices(stmt.dst, places), cast_to(so_far, dtype), loc=stmt.loc),
    )
    start, one = (tirx.const(value, counts) for value in (0, 1))
    loop = For(kind, step, start, length, one, body, loc=stmt.loc)
    return (Alloc(running, identity(stmt.kind, held), loc=stmt.loc), loop)


def _indices(region: Region, places: Mapping[int, Expr]) -> tuple[Expr, ...]:
    return tuple(
        add(start, places[axis]) if axis in places else start for axis, start in enumerate(region.start)
    )


def _index_type(extent: int | Expr) -> str:
    return "int32" if isinstance(extent, int) else dtype_of(extent)
