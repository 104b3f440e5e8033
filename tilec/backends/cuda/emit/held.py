"""What a thread holds of tiles: registers, and the pieces that it moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.layout import Layout


@dataclass(frozen=True, eq=False)
class Fragment:
    """A tile in registers: this thread's elements are ``data``, in the order that ``layout`` says."""

    data: Var
    dtype: str
    layout: Layout


@dataclass(frozen=True, eq=False)
class Piece:
    """``values`` are the loop variables at the first element of a piece: what the thread decides plus a
    constant. ``guards`` are the conditions under which the tile has the piece, where it may not."""

    values: dict[Var, Expr]
    guards: tuple[Expr, ...]


@dataclass(eq=False)
class LookedUp:
    """This thread's ``pieces`` over ``vars``, and the value of each place for each piece."""

    vars: tuple[Var, ...]
    pieces: list[Piece]
    places: dict[Var, list[Expr]] = field(default_factory=dict)

    def over(self, variables: Sequence[Var]) -> list[Piece]:
        """The pieces over other variables of the same extents, with their places."""
        made = []
        for number, piece in enumerate(self.pieces):
            values = {new: piece.values[old] for old, new in zip(self.vars, variables, strict=True)}
            values |= {place: found[number] for place, found in self.places.items()}
            made.append(Piece(values, piece.guards))
        return made
