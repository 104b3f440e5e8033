"""An axis of a grid whose blocks are numbered over rows and columns of tiles becomes two axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import as_extent, dtype_of, inlined, int_value, loads, same, transform, uses, walk
from tilec.ir.nodes import Bind, Block, Launch
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_MOST_AXES = 3
_NOTE = "its blocks are numbered over rows and columns of tiles, which are axes of the grid"


class PartFlatGrids(LaunchPass):
    """In: a launch that uses the block index n of an axis of r * c blocks as n % r and n // r alone. Out: two
    axes, of r and of c blocks, in the same order: bands of tiles share what they load along both."""

    def launch(self, launch: Launch) -> Launch:
        """The launch over rows and columns."""
        if len(launch.grid) >= _MOST_AXES or launch.schedule.clusters is not None or launch.thread_vars:
            return launch
        made = (_parted(launch, axis) for axis in range(len(launch.grid)))
        return next((each for each in made if each is not None), launch)


def _parted(launch: Launch, axis: int) -> Launch | None:
    """The launch with two axes for one; None where that is no such one."""
    found = parts_of(launch, axis)
    columns = None if found is None else _columns(launch, axis, found.divisor)
    if found is None or columns is None:
        return None
    grid, block_vars = list(launch.grid), list(launch.block_vars)
    grid[axis : axis + 1] = [as_extent(found.divisor), as_extent(columns)]
    block_vars[axis : axis + 1] = [found.remainder, found.quotient]
    made = replace(launch, grid=tuple(grid), block_vars=tuple(block_vars), body=found.body)
    return with_notes(made, [_NOTE])


@dataclass(frozen=True, eq=False)
class Parts:
    """A ``body`` that uses a block index as its ``remainder`` and ``quotient`` by a ``divisor`` alone."""

    divisor: Expr
    remainder: Var
    quotient: Var
    body: Block


def parts_of(launch: Launch, axis: int) -> Parts | None:
    """The parts of the block index of an axis; None where a launch uses it otherwise."""
    number = launch.block_vars[axis]
    names = values_of(launch.body)
    own = {var: value for var, value in names.items() if uses(inlined(value, names), (number,))}
    divisor = _divisor(launch, number, names)
    if divisor is None:
        return None
    inner, outer = (tirx.Var(f"{number.name}_{name}", dtype_of(number)) for name in ("row", "column"))

    def visit(node: Expr) -> Expr | None:
        if not _is_part(node, number):
            return None
        return inner if isinstance(node, tirx.FloorMod) else outer

    kept = tuple(stmt for stmt in launch.body if not (isinstance(stmt, Bind) and stmt.var in own))
    body = map_block(kept, lambda expr: transform(inlined(expr, own), visit))
    if any(uses(expr, (number,)) for stmt in walk_statements(body) for expr in expressions(stmt)):
        return None
    return Parts(divisor, inner, outer, body)


def _divisor(launch: Launch, number: Var, names: dict[Var, Expr]) -> Expr | None:
    """What a number is divided by wherever it is used; None where that is not the same."""
    divisors: list[Expr] = []
    for stmt in walk_statements(launch.body):
        for expr in expressions(stmt):
            divisors += [
                inlined(node.b, names) for node in walk(inlined(expr, names)) if _is_part(node, number)
            ]
    if not divisors or not all(same(divisors[0], other) for other in divisors):
        return None
    first = divisors[0]
    fixed = not uses(first, launch.block_vars) and next(loads(first), None) is None
    return first if fixed else None


def _is_part(node: Expr, number: Var) -> bool:
    return isinstance(node, (tirx.FloorMod, tirx.FloorDiv)) and bool(node.a.same_as(number))


def _columns(launch: Launch, axis: int, rows: Expr) -> Expr | None:
    """The other factor of an axis's extent; None where ``rows`` is none."""
    extent, names = launch.grid[axis], values_of(launch.body)
    if isinstance(extent, int):
        size = int_value(rows)
        whole = size is not None and size > 0 and extent % size == 0
        return tirx.const(extent // size, dtype_of(rows)) if size is not None and whole else None
    extent = inlined(extent, names)
    if not isinstance(extent, tirx.Mul):
        return None
    return next(
        (other for one, other in ((extent.a, extent.b), (extent.b, extent.a)) if same(one, rows)), None
    )
