"""Whether a box of a tensor lies elsewhere in every trip of the loops around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilec.ir.exprs import inlined, int_value, linear_in, loads
from tilec.ir.nodes import For, Pipelined, Region, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def moves(box: Region, loops: Sequence[Stmt], values: Mapping[Var, Expr]) -> bool:
    """Whether no two trips of ``loops``, which stand around ``box``, give it a common element: each loop
    moves it along an axis of its own, and by its extent there at least. ``values`` are names in its
    starts."""
    counted = [loop for loop in loops if isinstance(loop, (For, Pipelined))]
    variables = [loop.var for loop in counted]
    axes = [
        _mover(inlined(start, values), variables, int_value(extent))
        for start, extent in zip(box.start, box.extent, strict=True)
    ]
    return len(counted) == len(loops) and all(number in axes for number in range(len(variables)))


def _mover(start: Expr, variables: Sequence[Var], extent: int | None) -> int | None:
    """The number of the only variable that moves the start of an axis, None where it is no such axis."""
    linear = linear_in(start, variables) if next(loads(start), None) is None else []
    factors = [int_value(factor) for factor in linear[:-1]]
    moving = [number for number, factor in enumerate(factors) if factor != 0]
    if not factors or len(moving) != 1 or extent is None:
        return None
    (number,) = moving
    factor = factors[number]
    return number if factor is not None and abs(factor) >= extent else None
