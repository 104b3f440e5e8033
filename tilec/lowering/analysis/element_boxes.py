"""Elements that the iterations of a loop name, as a box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.exprs import conjuncts, dtype_of, int_value, substitute, uses
from tilec.ir.nodes import Region
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.analysis.whole_numbers import is_zero

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def box_of(
    buffer: Var, indices: Sequence[Expr], variables: Sequence[Var], extents: Sequence[int]
) -> Region | None:
    """The region that ``buffer[indices]`` is over all values of loop variables: each of them moves an axis of
    its own by one, in order. None where it is something else."""
    analyzer = sym.Analyzer()
    zeros = {var: tirx.const(0, dtype_of(var)) for var in variables}
    left = list(zip(variables, extents, strict=True))
    start: list[Expr] = []
    sizes: list[int] = []
    for index in indices:
        if not uses(index, tuple(variables)):
            start.append(index)
            sizes.append(1)
            continue
        var, extent = left.pop(0) if left else (variables[0], 0)
        first = analyzer.simplify(substitute(index, zeros))
        if extent == 0 or int_value(analyzer.simplify(index - first - var)) != 0:
            return None
        start.append(first)
        sizes.append(extent)
    return None if left else Region(buffer, tuple(start), tuple(sizes))


def is_inside(cond: Expr, buffer: Var, indices: Sequence[Expr]) -> bool:
    """Whether a condition says no more than that ``buffer[indices]`` lies inside of its tensor."""
    axes = list(zip(indices, buffer.shape, strict=True))
    ends = [gap(end) for index, size in axes for end in (index >= 0, index < size)]
    found = [gap(part) for part in conjuncts(cond)]
    return all(
        part is not None and any(end is not None and is_zero(part - end) for end in ends) for part in found
    )
