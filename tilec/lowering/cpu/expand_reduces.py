"""Reduce as accumulation in a Parallel loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Block, Fill, Kernel, Parallel, Reduce, Stmt, Store
from tilec.lowering.cpu.accumulations import identity
from tilec.lowering.cpu.expand_copies import add, cast_to, expand_fill
from tilec.lowering.exprs import dtype_of
from tilec.lowering.passes import rewrite_launch_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


@dataclass(frozen=True)
class ExpandReduces:
    """In: Reduce. Out: none of them; each is a fill of the result with the identity (where it clears) and a
    Parallel over the source whose iterations accumulate into the result, each exactly once."""

    name: str = "expand_reduces"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Reduce."""
        return rewrite_launch_blocks(kernel, _expand_block)


def _expand_block(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in (_expand(stmt) if isinstance(stmt, Reduce) else [stmt])]


def _expand(stmt: Reduce) -> list[Stmt]:
    dtype = str(stmt.dst.buffer.dtype)
    variables = tuple(_variable(f"r{axis}", extent) for axis, extent in enumerate(stmt.src.extent))
    source = tuple(add(start, var) for start, var in zip(stmt.src.start, variables, strict=True))
    term = cast_to(tirx.BufferLoad(stmt.src.buffer, list(source)), dtype)
    result = _result_indices(stmt, variables)
    old = tirx.BufferLoad(stmt.dst.buffer, list(result))
    store = Store(stmt.dst.buffer, result, _combined(stmt, old, term), loc=stmt.loc)
    loop = Parallel(variables, stmt.src.extent, (store,), loc=stmt.loc)
    if not stmt.clear:
        return [loop]
    return [expand_fill(Fill(stmt.dst, identity(stmt.kind, dtype), loc=stmt.loc)), loop]


def _variable(name: str, extent: int | Expr) -> Var:
    return tirx.Var(name, "int32" if isinstance(extent, int) else dtype_of(extent))


def _result_indices(stmt: Reduce, variables: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The element of the result that an iteration belongs to."""
    rank = len(stmt.dst.start)
    kept = list(variables[: stmt.axis] + variables[stmt.axis + 1 :])
    if rank == len(variables):
        kept.insert(stmt.axis, None)
    kept += [None] * (rank - len(kept))
    return tuple(
        start if var is None else add(start, var) for start, var in zip(stmt.dst.start, kept, strict=True)
    )


def _combined(stmt: Reduce, old: Expr, term: Expr) -> Expr:
    if stmt.kind == "sum":
        return tirx.Add(old, term)
    term = tirx.abs(term) if stmt.kind == "absmax" else term
    kind = tirx.Min if stmt.kind == "min" else tirx.Max
    if not stmt.nan_propagate:
        return kind(old, term)
    keeps = tirx.LE(old, term) if stmt.kind == "min" else tirx.GE(old, term)
    return tirx.Select(tirx.Or(keeps, tirx.isnan(old)), old, term)
