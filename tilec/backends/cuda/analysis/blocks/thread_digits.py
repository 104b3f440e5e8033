"""Indices of threads as the digits that an author takes them apart into: of ``tx // 16`` and ``tx % 16``, or
``tx >> 4`` and ``tx & 15``, the digits of tx are one below 16 and what counts sixteens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var

from tilec.ir.exprs import dtype_of, int_value, linear_in, substitute, transform, uses, walk
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from tvm.ir import Expr


#: The types of indices, and how far a shift or mask of one is by a number that each of them has.
_INDICES = ("int32", "uint32", "int64", "uint64")
_BITS = range(31)


@dataclass(frozen=True, eq=False)
class ThreadDigits:
    """Variables in place of indices of threads, fastest first, their ``extents``, and the indices in terms
    of them, where they are several."""

    vars: tuple[Var, ...]
    extents: tuple[int, ...]
    values: Mapping[Var, Expr] = field(default_factory=dict)

    @staticmethod
    def of(variables: Iterable[Var], extents: Iterable[int], exprs: Iterable[Expr]) -> ThreadDigits:
        """Those into which ``exprs`` take ``variables`` apart."""
        exprs = [divided(expr) for expr in exprs]
        digits: list[tuple[Var, int]] = []
        values: dict[Var, Expr] = {}
        for var, extent in zip(variables, extents, strict=True):
            own = _digits(var, extent, exprs)
            digits += own
            if len(own) > 1:
                values[var] = _number(own)
        return ThreadDigits(tuple(var for var, _ in digits), tuple(extent for _, extent in digits), values)

    def spell(self, index: Expr) -> Expr:
        """An index in terms of digits."""
        if not uses(index, self.values):
            return index
        return counted(self.vars, self.extents).simplify(substitute(divided(index), self.values))


def divided(expr: Expr) -> Expr:
    """An index with quotients and remainders for shifts and masks, which are those of any integers."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tirx.RShift):
            return by_bits(tirx.floordiv, node, int_value(node.b))
        if isinstance(node, tirx.BitwiseAnd):
            return by_bits(tirx.floormod, node, _ones(int_value(node.b)))
        return None

    def by_bits(operation: Callable[..., Expr], node: Expr, bits: int | None) -> Expr | None:
        if bits is None or bits not in _BITS or dtype_of(node) not in _INDICES:
            return None
        return operation(divided(node.a), tirx.const(1 << bits, dtype_of(node)))

    return transform(expr, visit)


def _ones(mask: int | None) -> int | None:
    """How many of the lowest bits a mask keeps; None where it keeps others, or none."""
    return mask.bit_length() if mask is not None and mask > 0 and mask & (mask + 1) == 0 else None


def _digits(var: Var, extent: int, exprs: Iterable[Expr]) -> list[tuple[Var, int]]:
    """The digits of one index; itself alone where nothing takes it apart. Of places that do not divide each
    other the lower ones count."""
    found = {_place(node, var, extent) for expr in exprs for node in walk(expr)}
    places = [1]
    for place in (*sorted(found - {0, 1}), extent):
        if place > places[-1] and place % places[-1] == 0 and extent % place == 0:
            places.append(place)
    if len(places) < 3:
        return [(var, extent)]
    return [(tirx.Var(f"{var.name}_{low}", dtype_of(var)), high // low) for low, high in pairwise(places)]


def _number(digits: Iterable[tuple[Var, int]]) -> Expr:
    """What digits are together."""
    total, place = None, 1
    for var, extent in digits:
        term = var * tirx.const(place, dtype_of(var))
        total = term if total is None else total + term
        place *= extent
    assert total is not None
    return total


def _place(node: Expr, var: Var, extent: int) -> int:
    """Where a quotient or remainder cuts an index below ``extent`` in two; 0 for anything else."""
    if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)):
        return 0
    return _step(node.a, var, extent) * (int_value(node.b) or 0)


def _step(value: Expr, var: Var, extent: int) -> int:
    """What of an index counts as one in a part of it, or in it and multiples of its extent; 0 where a value
    is no part of it."""
    if isinstance(value, (tirx.FloorMod, tirx.Mod)):
        return _step(value.a, var, extent)
    if isinstance(value, (tirx.FloorDiv, tirx.Div)):
        return _place(value, var, extent)
    linear = linear_in(value, [var]) if uses(value, (var,)) else ()
    if not linear or int_value(linear[0]) != 1:
        return 0
    rest = sym.Analyzer().modular_set(linear[1])
    return int(rest.coeff % extent == 0 and rest.base % extent == 0)
