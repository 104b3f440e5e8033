"""Square blocks of one vector a side, transposed in registers.

Half of the rows exchange their odd parts with the other half, for parts of 1, 2, 4... lanes: after
log2(lanes) rounds row and column have changed places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.tir import index
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr


def named(value: Expr, parts: list[tirx.Stmt]) -> Expr:
    """A variable for ``value``, bound at the end of ``parts``."""
    var = tirx.Var("v", dtype_of(value))
    parts.append(tirx.Bind(var, value))
    return var


def transposed(rows: list[Expr], parts: list[tirx.Stmt]) -> list[Expr]:
    """The columns of as many vectors as each has lanes; what computes them goes to the end of ``parts``."""
    distance = 1
    while distance < len(rows):
        rows = _exchanged(rows, distance, parts)
        distance *= 2
    return rows


def _exchanged(rows: list[Expr], distance: int, parts: list[tirx.Stmt]) -> list[Expr]:
    """One round: rows ``distance`` apart exchange their parts of ``distance`` lanes."""
    lanes, result = len(rows), list(rows)
    low = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
    high = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
    for first in range(lanes):
        if first & distance:
            continue
        second = first + distance
        pair = [rows[first], rows[second]]
        result[first] = named(_shuffled(pair, low), parts)
        result[second] = named(_shuffled(pair, high), parts)
    return result


def _shuffled(vectors: list[Expr], lanes: list[int]) -> Expr:
    return tirx.Shuffle(vectors, [index(lane) for lane in lanes])
