"""Elements of a tile (K, N) that are made of stored integers which hold several along N: numbers, and what
columns multiply them with and add to them.

Ws[k, j] = float16(float32((W[ko * 128 + k, j // 8] >> order(j % 8) * 4 & 15) - zero(ko, j)) * s[ko, j])
->
number f     float32(integer >> order(f) * 4 & 15)        integer = W[ko * 128 + k, w] for j = w * 8 + f
factor       s[ko, j],  offset -zero(ko, j) * s[ko, j]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm
from tvm import sym, tirx

from tilec.backends.cpu.passes.few_bits.group_numbers import BYTE, STORED, is_side_by_side, simplified, split
from tilec.backends.cpu.passes.few_bits.group_offsets import linear
from tilec.ir.exprs import cast_to, dtype_of, each_once, is_zero, loads, substitute, uses, with_part

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

#: Numbers of an integer.
_EACH = (8, 4, 2)


@dataclass(frozen=True, eq=False)
class ColumnNumbers:
    """Column ``word * each + f`` of a tile is ``factor`` times ``numbers[f]``, a value of ``integer``, plus
    ``offset``, float32 values by the column and the trip. ``stored`` is what memory has at ``word``; it alone
    varies along K."""

    word: Var
    stored: TensorLoad
    integer: Var
    numbers: tuple[Expr, ...]
    factor: Expr
    offset: Expr

    @property
    def each(self) -> int:
        """Numbers in an integer."""
        return len(self.numbers)

    @property
    def has_offset(self) -> bool:
        """Whether something is added to numbers."""
        return not is_zero(self.offset)


def column_numbers(value: Expr, k: Var, column: Var, columns: int) -> ColumnNumbers | None:
    """What ``value`` is made of, the element at ``k`` and ``column`` of a tile with so many columns; None
    where it is not made so."""
    whole = split(value, k, (column,))
    if whole is None:
        return None
    names, shared = tuple(name for name, _ in whole.shared), dict(whole.shared)
    part = next((load for load in loads(whole.number)), None)
    if part is None:
        return None
    integer = tirx.Var("stored", dtype_of(part))
    parted = linear(with_part(whole.number, part, integer), integer, names)
    if parted is None:
        return None
    factor, offset = (substitute(each, shared) * whole.scale for each in (parted.factor, parted.offset))
    offset = sym.Analyzer().simplify(offset)
    number = substitute(parted.number, {integer: part})
    found = (_of_integers(number, k, column, columns, each) for each in _EACH if columns % each == 0)
    return next((ColumnNumbers(*numbers, factor, offset) for numbers in found if numbers is not None), None)


def _of_integers(
    number: Expr, k: Var, column: Var, columns: int, each: int
) -> tuple[Var, TensorLoad, Var, tuple[Expr, ...]] | None:
    """A word, what memory has there, its name and its numbers, where integers hold ``each``."""
    word, analyzer = tirx.Var("w", "int32"), sym.Analyzer()
    analyzer.bind(word, tvm.ir.Range(0, columns // each))
    places = ({column: cast_to(word * each + f, dtype_of(column))} for f in range(each))
    numbers = [simplified(substitute(number, place), analyzer) for place in places]
    stored = each_once(load for number in numbers for load in loads(number))
    if len(stored) != 1 or not is_side_by_side(stored[0], word, analyzer) or not _is_along(stored[0], k):
        return None
    kind = dtype_of(stored[0])
    if kind not in STORED or STORED[kind] > BYTE * each:
        return None
    integer = tirx.Var("stored", kind)
    return word, stored[0], integer, tuple(with_part(number, stored[0], integer) for number in numbers)


def _is_along(load: TensorLoad, k: Var) -> bool:
    """Whether ``k`` picks the row of what is read, and nothing inside of it."""
    *outer, last = load.indices
    return not uses(last, (k,)) and sum(uses(index, (k,)) for index in outer) == 1
