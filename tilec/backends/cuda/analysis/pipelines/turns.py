"""Versions of a tile that the trips of a loop take in turns: of ``t[k % 2, ...]`` trip k has one, the trips
beside it another, and none of them waits for what another one does to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.thread_digits import divided
from tilec.ir.exprs import inlined, int_value, linear_in, transform, uncast, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True)
class Turn:
    """The elements at ``(trip + offset) % count`` along ``axis``, where a loop counts ``trip``."""

    axis: int
    trip: Var
    count: int
    offset: int

    @staticmethod
    def of(indices: Iterable[Expr | None], names: Mapping[Var, Expr], trips: Sequence[Var]) -> Turn | None:
        """The version that ``indices`` name by one of ``trips``, where ``names`` stand for values and None
        for several elements; None where no axis has versions."""
        found = (_turn(axis, index, names, trips) for axis, index in enumerate(indices) if index is not None)
        return next((turn for turn in found if turn is not None), None)

    def differs(self, other: Turn) -> bool:
        """Whether these are other elements."""
        alike = self.axis == other.axis and self.trip.same_as(other.trip) and self.count == other.count
        return alike and self.offset != other.offset

    def later(self, step: int) -> Turn:
        """The same elements, told by the next trip of a loop that counts by ``step``."""
        return replace(self, offset=(self.offset - step) % self.count)


def _turn(axis: int, index: Expr, names: Mapping[Var, Expr], trips: Sequence[Var]) -> Turn | None:
    index = uncast(divided(inlined(index, names)))
    count = int_value(index.b) if isinstance(index, tirx.FloorMod) else None
    if count is None or count < 2:
        return None
    trip = next((trip for trip in trips if uses(index.a, (trip,))), None)
    linear = (
        [int_value(part) for part in linear_in(_modulo(index.a, count), [trip])] if trip is not None else []
    )
    if trip is None or len(linear) != 2 or linear[0] != 1 or linear[1] is None:
        return None
    return Turn(axis, trip, count, linear[1] % count)


def _modulo(value: Expr, count: int) -> Expr:
    """A sum with the same remainder by ``count``, without remainders inside."""

    def visit(node: Expr) -> Expr | None:
        alike = isinstance(node, tirx.FloorMod) and (int_value(node.b) or 1) % count == 0
        return _modulo(node.a, count) if alike else None

    return transform(value, visit)
