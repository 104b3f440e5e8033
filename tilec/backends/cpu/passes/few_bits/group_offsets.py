"""Sums of groups whose numbers have an offset of the group, as zero points and minima are: the offset times
the sum of activations, in place of one operation for each number.

own[p] += steps[t] * ((number - zero) * planes[t, 0, p] + ...)
->
own[p] += steps[t] * (number * planes[t, 0, p] + ...) + offsets[t] * sums[t, p]
                                                        with offsets[t] = -zero * steps[t]

That is so of finite activations: an infinite one times an offset would take what it is times a number off,
and leave NaN. Activations are looked through for such once in front of the product, which is made as its
numbers are written where one is found. Where lanes look nothing up, numbers then stay where they are in their
word, many times as large (`group_words.in_place`); activations are divided by as much, which those that are
nearly 0 would not bear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tvm import tirx

from tilec.backends.cpu.passes.few_bits.group_pairs import PairSums, sums_of
from tilec.backends.cpu.passes.few_bits.group_tiles import are_near, far_mark, new_tile
from tilec.backends.cpu.products.packing import whole_region
from tilec.ir.exprs import int32, same, substitute, uses
from tilec.ir.nodes import Alloc, Fill, For, If, Parallel, Reduce, Store

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.passes.few_bits.group_numbers import GroupNumbers
    from tilec.backends.cpu.passes.few_bits.group_sums import GroupProduct, GroupSums
    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: What is far from any activation, and far from overflowing when numbers of few bits multiply it.
_BOUND = 2.0**64
#: Activations that keep their bits, divided by what numbers in their place are times too large.
_LEAST = 2.0**-98


class Activations(Protocol):
    """``rows`` of activations of a product, in ``pieces`` of ``elements``."""

    loc: Any
    rows: int

    @property
    def elements(self) -> int:
        """Activations of a row in a piece."""

    @property
    def pieces(self) -> Expr:
        """How many pieces the loop has."""

    def activation(self, row: int, piece: Expr, at: Expr) -> Expr:
        """Activation ``at`` of ``piece`` and ``row``."""


def sums_stmts(product: GroupProduct, target: Target) -> list[Stmt]:
    """What takes the place of ``product``: sums, where offsets cost an operation for each number in two
    forms, of which the first one is for activations that are finite. A loop that is scaled is itself the
    other form."""
    exact, apart = sums_of(product, target), without_offsets(product.groups)
    moved = sums_of(replace(product, groups=apart or product.groups), target, near=True)
    if moved.groups.times:
        return if_finite(exact, moved.stmts(), exact.stmts(), _LEAST)
    if apart is None or not _gains(moved):
        return exact.stmts()
    if product.scaled:
        return moved.stmts()
    return if_finite(exact, moved.stmts(), exact.stmts())


def if_finite(sums: Activations, finite: list[Stmt], others: list[Stmt], least: float = 0.0) -> list[Stmt]:
    """The statements for finite activations, where all of ``sums`` are, else ``others``; those nearer to 0
    than ``least`` count as others."""
    far = new_tile("far", 1)
    return [
        Alloc(far, loc=sums.loc),
        *_looked_through(sums, far, least),
        If(are_near(far), tuple(finite), tuple(others), loc=sums.loc),
    ]


def _gains(moved: GroupSums) -> bool:
    """Whether sums without offsets are worth a form: by pairs, or of one row where no table of the group has
    what a number becomes."""
    if isinstance(moved, PairSums):
        return True
    return moved.rows == 1 and not (moved.tables and moved.together == 1)


def _looked_through(sums: Activations, far: Var, least: float) -> list[Stmt]:
    """``far[0]`` = whether an activation is not within the bound, as 1 or 0."""
    piece, at = tirx.Var("c", "int32"), tirx.Var("i", "int32")
    found = new_tile("found", sums.elements)
    body: list[Stmt] = [Alloc(found, loc=sums.loc)]
    for row in range(sums.rows):
        mark = far_mark(sums.activation(row, piece, at), _BOUND, least)
        body += [
            Parallel((at,), (sums.elements,), (Store(found, (at,), mark, loc=sums.loc),), loc=sums.loc),
            Reduce("max", whole_region(found), whole_region(far), 0, False, loc=sums.loc),
        ]
    return [
        Fill(whole_region(far), tirx.const(0.0, "float32"), loc=sums.loc),
        For("serial", piece, int32(0), sums.pieces, int32(1), tuple(body), loc=sums.loc),
    ]


def without_offsets(groups: GroupNumbers) -> GroupNumbers | None:
    """``groups`` whose numbers are values of integers alone, with what the group shares in its scale and its
    offset; None where integers are one number each, or numbers share nothing, or more than that."""
    if groups.each == 1 or not groups.shared:
        return None
    names = tuple(groups.shared)
    found = [linear(number, groups.integer, names) for number in groups.numbers]
    known = [part for part in found if part is not None]
    if len(known) < len(found) or not all(known[0].is_alike(part) for part in known):
        return None
    factor, offset = (substitute(each, groups.shared) for each in (known[0].factor, known[0].offset))
    numbers = tuple(part.number for part in known)
    scale, offset = groups.scale * factor, groups.scale * offset
    return replace(groups, numbers=numbers, shared={}, scale=scale, offset=offset)


@dataclass(frozen=True, eq=False)
class _Linear:
    """``factor`` times ``number``, a value of the integer alone, plus ``offset``."""

    number: Expr
    factor: Expr
    offset: Expr

    def is_alike(self, other: _Linear) -> bool:
        """Whether two numbers share what is not their own."""
        return same(self.factor, other.factor) and same(self.offset, other.offset)


def linear(expr: Expr, integer: Var, names: tuple[Var, ...]) -> _Linear | None:
    """``expr`` as such; None where it is something else of ``integer`` and ``names``."""
    if not uses(expr, names):
        return _Linear(expr, tirx.const(1.0, "float32"), tirx.const(0.0, "float32"))
    if not isinstance(expr, (tirx.Add, tirx.Sub, tirx.Mul)) or uses(expr.a, (integer,)) == uses(
        expr.b, (integer,)
    ):
        return None
    first = uses(expr.a, (integer,))
    inner = linear(expr.a if first else expr.b, integer, names)
    if inner is None:
        return None
    other = expr.b if first else expr.a
    if isinstance(expr, tirx.Mul):
        return _Linear(inner.number, inner.factor * other, inner.offset * other)
    if isinstance(expr, tirx.Add):
        return _Linear(inner.number, inner.factor, inner.offset + other)
    if first:
        return _Linear(inner.number, inner.factor, inner.offset - other)
    return _Linear(inner.number, -inner.factor, other - inner.offset)
