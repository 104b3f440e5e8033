"""Where the vectors of a ragged loop lie in a tensor, and what holds where they are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.ir.exprs import all_of, choice_of, dtype_of, inlined, int_value, linear_in, substitute
from tilec.ir.nodes import Bind, Block
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.storage import convert, element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr


class Shifted(NamedTuple):
    """What a ragged loop's body first names: the shift, and the column of a place."""

    shift: Bind
    column: Bind


@dataclass(frozen=True, eq=False)
class Spot:
    """A vector of a tensor, as expressions of the device code."""

    #: Of its first element in the tensor, were there no end of the columns to go around.
    place: Expr
    #: Of its first element in its row, which has ``extent`` elements.
    index: Expr
    extent: Expr
    #: What holds where its row exists, where all of it does, and where its first element does (any element,
    #: if it may begin in front of the row).
    rows: list[Expr]
    whole: list[Expr]
    first: list[Expr]
    #: How many of its elements lie a lap of the columns further on, where that is positive.
    turned: Expr
    #: Either all of it exists or nothing.
    is_even: bool
    #: ``index`` and ``extent`` as tile IR has them.
    last: Expr
    size: Expr

    def has_elements(self, shifts: bool) -> list[Expr]:
        """What holds where any of its elements exists; ``shifts``: it may go around."""
        if not shifts:
            return self.first
        turned = tirx.GT(self.turned, tirx.const(0, "int32"))
        return [*self.rows, tirx.Or(turned, all_of(self.first))] if self.first else self.rows


class Spots:
    """The vectors of one loop, whose variable ``var`` stands at the first element of each."""

    def __init__(self, body: Block, var: Var, ctx: DeviceContext) -> None:
        self.var, self.ctx = var, ctx
        self.names = shifted(body, var)
        self.values = values_of(body)
        for name in self.names or ():
            del self.values[name.var]

    def straight(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices without names of the body, as they are where the vector does not go around."""
        found = (inlined(index, self.values) for index in indices)
        if self.names is None:
            return tuple(found)
        plain = self.var - convert(self.names.shift.var, dtype_of(self.var))
        return tuple(substitute(index, {self.names.column.var: plain}) for index in found)

    def column(self, last: Expr) -> Expr | None:
        """An index in a row but for the variable and its shift: where the columns of an access begin."""
        facts = self.ctx.facts
        last = facts.inline(last)
        moved = last if self.names is None else last + facts.inline(self.names.shift.var)
        linear = linear_in(moved, [self.var])
        return linear[1] if linear else None

    def at(self, buffer: Var, indices: Sequence[Expr], width: int) -> Spot:
        """The vector of ``width`` elements from where the variable stands."""
        ctx = self.ctx
        *rows, last = self.straight(indices)
        zero, end = tirx.const(0, dtype_of(last)), last + tirx.const(width - 1, dtype_of(last))
        around, turned = self._around()
        exists, first, behind = (existing(buffer, (*rows, index), ctx) for index in (zero, last, end))
        storage = ctx.storage(buffer)
        even = self.names is None and self._is_even(last, storage.shape[-1], width)
        return Spot(
            place=convert(storage.offset([ctx.value(index) for index in (*rows, last)]), "int64"),
            index=convert(ctx.value(last), "int64"),
            extent=convert(ctx.value(storage.shape[-1]), "int64"),
            rows=exists,
            whole=first if even else [*first, *behind, *around],
            first=first if self._follows(last) else [*exists, *self._reaches(last, end, storage.shape[-1])],
            turned=turned,
            is_even=even,
            last=last,
            size=storage.shape[-1],
        )

    def _is_even(self, index: Expr, extent: Expr, width: int) -> bool:
        """Whether a row ends with a vector."""
        facts = self.ctx.facts
        linear = linear_in(facts.inline(index), [self.var])
        if not linear or not divides(width, extent, facts):
            return False
        return int_value(linear[0]) == 1 and divides(width, linear[1], facts)

    def _follows(self, index: Expr) -> bool:
        """Whether a vector surely begins in its row or behind it, but for the shift of columns."""
        if self.names is not None:
            index = index + convert(self.names.shift.var, dtype_of(index))
        return self.ctx.facts.prove(tirx.GE(index, tirx.const(0, dtype_of(index)))) is True

    def _reaches(self, first: Expr, last: Expr, extent: Expr) -> list[Expr]:
        """What holds where any element of a vector lies between the ends of its row."""
        extent, zero = convert(extent, dtype_of(first)), tirx.const(0, dtype_of(last))
        return [self.ctx.value(cond) for cond in (tirx.LT(first, extent), tirx.GE(last, zero))]

    def _around(self) -> tuple[list[Expr], Expr]:
        """What holds where a vector does not go around the end of the columns, and how many of its elements
        do."""
        if self.names is None:
            return [], tirx.const(0, "int32")
        shift = convert(self.names.shift.var, dtype_of(self.var))
        straight = tirx.GE(self.var, shift)
        known = self.ctx.facts.prove(straight) is True
        turned = convert(self.ctx.value(shift - self.var), "int32")
        return [] if known else [self.ctx.value(straight)], turned


def existing(buffer: Var, indices: Sequence[Expr], ctx: DeviceContext) -> list[Expr]:
    """What holds where an element exists, but for what is known to hold."""
    conds = open_bounds(buffer, indices, ctx)
    return [tirx.const(False, "bool")] if conds is None else [ctx.value(cond) for cond in conds]


def shifted(body: Block, var: Var) -> Shifted | None:
    """The names of a body whose columns are shifted against the variable; None for any other body."""
    shift, column = (*body, None, None)[:2]
    if not isinstance(shift, Bind) or not isinstance(column, Bind) or not isinstance(column.value, tirx.Add):
        return None
    choice = choice_of(column.value.b)
    if choice is None or not isinstance(choice[0], tirx.LT) or not choice[0].a.same_as(var):
        return None
    return Shifted(shift, column)


def rest(place: Expr, width: int) -> Expr:
    """How far a place is behind a multiple of a power of two."""
    return convert(tirx.bitwise_and(place, tirx.const(width - 1, dtype_of(place))), "int32")


def bytes_of(buffer: Var, width: int) -> tuple[int, int]:
    """Bytes of a vector, and of an element."""
    each = element_bytes(str(buffer.dtype))
    return width * each, each
