"""Tiles that sums of groups have: what each group of a column shares, sums of its own, marks of numbers that
are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int32, substitute, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.ir.nodes import Bind

#: Lanes that sums of a row of weights have.
LANES = 16


@dataclass(frozen=True, eq=False)
class Column:
    """A column ``at``, what its ``steps`` have, and tiles of its ``own`` sums, and of what groups add to them
    besides (``more``), for each row."""

    at: Expr
    steps: OfSteps
    own: list[Var]
    more: list[Var]

    @property
    def tiles(self) -> tuple[Var, ...]:
        """All of its tiles."""
        return (*self.steps.values, *self.own, *self.more)


@dataclass(frozen=True, eq=False)
class Words:
    """``numbers`` of the integers of a step, by names that ``binds`` give."""

    binds: list[Bind]
    numbers: list[list[Expr]]


class OfSteps:
    """Tiles of what each of ``count`` groups has for itself: its scale and its offset, which may differ from
    one of ``rows`` of activations to the next, and the values of its ``shared`` names. ``values`` are what
    fills them."""

    def __init__(self, groups: GroupNumbers, count: int, row: Var, rows: int) -> None:
        self.count, self.row, self.rows = count, row, rows
        self.values: dict[Var, Expr] = {}
        self._scales = self._by_row("steps", groups.scale)
        self.shared = {name: self._tile(str(name.name)) for name in groups.shared}
        self.values |= {tile: groups.shared[name] for name, tile in self.shared.items()}
        self._offsets = [] if groups.offset is None else self._by_row("offsets", groups.offset)

    def _by_row(self, name: str, value: Expr) -> list[Var]:
        """Tiles of ``value``: one, or one for each row where rows differ."""
        rows = range(self.rows if uses(value, (self.row,)) else 1)
        tiles = [self._tile(name) for _ in rows]
        filled = (substitute(value, {self.row: int32(at)}) for at in rows)
        self.values |= zip(tiles, filled, strict=True)
        return tiles

    def _tile(self, name: str) -> Var:
        """A tile of what each group has, as many as whole vectors have."""
        lanes = min(LANES, self.count)
        return new_tile(name, -(-self.count // lanes) * lanes)

    def scale(self, row: int) -> Var:
        """The tile of scales of a row."""
        return self._scales[row % len(self._scales)]

    def offset(self, row: int) -> Var | None:
        """The tile of offsets of a row; None where groups have none."""
        return self._offsets[row % len(self._offsets)] if self._offsets else None


def new_tile(name: str, *shape: int, dtype: str = "float32") -> Var:
    """A tile of the block."""
    return tirx.decl_buffer(shape, dtype, name, scope="local.fragment")


def load_at(tile: Var, at: Expr) -> Expr:
    """Element ``at`` of a tile of one axis."""
    return tirx.BufferLoad(tile, [at])


def far_mark(value: Expr, bound: float, least: float = 0.0) -> Expr:
    """0 where ``value`` is less than ``bound`` on both sides of 0, and 0 or no nearer to it than ``least``,
    else 1, as of NaN; float32."""
    low, high, zero = (tirx.const(each, "float32") for each in (-bound, bound, 0.0))
    near = tirx.And(value > low, value < high)
    if least:
        above, below = value >= tirx.const(least, "float32"), value <= tirx.const(-least, "float32")
        near = tirx.And(near, tirx.Or(tirx.EQ(value, zero), tirx.Or(above, below)))
    return tirx.if_then_else(near, zero, tirx.const(1.0, "float32"))


def are_near(far: Var) -> Expr:
    """Whether ``far``, the largest of such marks, says so of none."""
    return tirx.EQ(load_at(far, int32(0)), tirx.const(0.0, "float32"))
