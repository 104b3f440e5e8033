"""Operands of float64 in shared memory: of each eight rows or columns a lane has one element for four of K.

Lane l of a warp has row or column l // 4 of the eight, element l % 4 of K, in two words: ldmatrix, which
gives a lane 4 bytes of a row, does not serve (PTX ISA, "Matrix Fragments for mma.m16n8k4 with .f64").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.mma import COLUMNS, STEP_BYTES
from tilec.backends.cuda.emit.products.lane_places import lane_place
from tilec.backends.cuda.emit.products.operands import SharedOperand

if TYPE_CHECKING:
    from tvm.ir import Var

#: Elements of K in a step, for each of which a quarter of a warp's lanes loads.
_DEPTH = STEP_BYTES // 8


@dataclass(eq=False)
class DoubleOperand(SharedOperand):
    """As `SharedOperand`, of float64."""

    @property
    def words(self) -> int:
        """As `Operand.words`, registers of 64 bits."""
        return self.tiles * self.size // COLUMNS

    def begin(self) -> list[tirx.Stmt]:
        """The place of this lane's first element, where the others are constant distances away."""
        if self.covered > self._extent():
            return []
        lane = self._lane()
        along = [part * COLUMNS for part in range(self.words)]
        deep = [step * _DEPTH for step in range(self.steps)]
        wide = COLUMNS if self.across else _DEPTH
        self._place = lane_place(
            self.region,
            *self._turned(lane // _DEPTH, lane % _DEPTH),
            self._lead(),
            self._turned(along, deep),
            wide,
            self.ctx,
        )
        return list(self._place.binds) if self._place is not None else []

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """An element for each eight rows or columns."""
        return [
            self._element_of(to, place + part, part * COLUMNS, step * _DEPTH) for part in range(self.words)
        ]

    def _element_of(self, to: Var, place: int, item: int, k: int) -> tirx.Stmt:
        """``to[place]`` becomes the lane's element ``item`` rows or columns and ``k`` of K further."""
        if self._place is not None:
            data, at = self._place.data, self._place.at(*self._turned(item, k))
        else:
            lane = self._lane()
            data, at = self._found(self._clamped(lane // _DEPTH + item, 1), (lane % _DEPTH + k).value)
        return tirx.BufferStore(to, data[at], [tirx.const(place, "int32")])
