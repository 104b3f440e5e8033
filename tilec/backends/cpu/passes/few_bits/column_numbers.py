"""Elements of a tile (K, N) that are made of stored integers which hold several, along N or along K: numbers,
and what columns multiply them with and add to them.

Ws[k, j] = float16(float32((W[ko * 128 + k, j // 8] >> order(j % 8) * 4 & 15) - zero(ko, j)) * s[ko, j])
->
number f     float32(integer >> order(f) * 4 & 15)        integer = W[ko * 128 + k, w] for j = w * 8 + f
factor       s[ko, j],  offset -zero(ko, j) * s[ko, j]

Words along K, as GPTQ has them (``W[(ko * 128 + k) // 8, j] >> k % 8 * 4``), have a row for eight ``k``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.passes.few_bits.group_numbers import (
    BYTE,
    STORED,
    is_side_by_side,
    simplified,
    split,
    within,
)
from tilec.backends.cpu.passes.few_bits.group_offsets import linear
from tilec.ir.exprs import (
    cast_to,
    dtype_of,
    each_once,
    is_zero,
    loads,
    substitute,
    uses,
    variables_of,
    with_part,
)
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

#: Numbers of an integer.
_EACH = (8, 4, 2)


@dataclass(frozen=True, eq=False)
class ColumnNumbers:
    """Column ``word * each + f`` of a tile is ``factor`` times ``numbers[f]``, a value of ``integer``, plus
    ``offset``, float32 values by the column and the trip. ``stored`` is what memory has at ``word``; it alone
    varies along K. Where integers hold numbers along K (``deep``), ``word`` is the column, and ``stored`` by
    the row of integers, of which row ``r`` has elements ``r * each + f``."""

    word: Var
    stored: TensorLoad
    integer: Var
    numbers: tuple[Expr, ...]
    factor: Expr
    offset: Expr
    deep: bool = False

    @property
    def wide(self) -> int:
        """Columns that an integer has numbers of."""
        return 1 if self.deep else len(self.numbers)

    @property
    def tall(self) -> int:
        """Elements along K that an integer has numbers of."""
        return len(self.numbers) if self.deep else 1

    @property
    def has_offset(self) -> bool:
        """Whether something is added to numbers."""
        return not is_zero(self.offset)

    @property
    def is_plain(self) -> bool:
        """Whether columns are numbers alone, or times a constant."""
        return not self.has_offset and isinstance(sym.Analyzer().simplify(self.factor), tirx.FloatImm)


def column_numbers(value: Expr, k: Var, column: Var, extents: tuple[int, int]) -> ColumnNumbers | None:
    """What ``value`` is made of, the element at ``k`` and ``column`` of a tile of such extents; None where it
    is not made so."""
    whole = split(within(value, {k: extents[0], column: extents[1]}), k, (column, k))
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
    for deep, moving, extent in ((False, column, extents[1]), (True, k, extents[0])):
        for each in (each for each in _EACH if extent % each == 0):
            found = _of_integers(number, moving, extent // each, each)
            if found is not None and _is_row(found[1], *((k, found[0]) if not deep else (found[0], column))):
                return _named(found, deep, k, column, factor, offset)
    return None


def _of_integers(
    number: Expr, moving: Var, count: int, each: int
) -> tuple[Var, TensorLoad, Var, tuple[Expr, ...]] | None:
    """A variable for ``count`` integers along ``moving``, what memory has there, its name and its numbers,
    where integers hold ``each``, values of the integer alone."""
    word = tirx.Var("w", "int32")
    analyzer = counted((word,), (count,))
    places = ({moving: cast_to(word * each + f, dtype_of(moving))} for f in range(each))
    made = [simplified(substitute(number, place), analyzer) for place in places]
    stored = each_once(load for part in made for load in loads(part))
    kind = dtype_of(stored[0]) if len(stored) == 1 else ""
    if kind not in STORED or STORED[kind] > BYTE * each:
        return None
    integer = tirx.Var("stored", kind)
    numbers = tuple(with_part(part, stored[0], integer) for part in made)
    if any(not var.same_as(integer) for var in variables_of(numbers)):
        return None
    return word, stored[0], integer, numbers


def _named(
    found: tuple[Var, TensorLoad, Var, tuple[Expr, ...]],
    deep: bool,
    k: Var,
    column: Var,
    factor: Expr,
    offset: Expr,
) -> ColumnNumbers:
    """``found`` integers as numbers of columns: a row of those along K is ``k`` then."""
    word, stored, integer, numbers = found
    if not deep:
        return ColumnNumbers(word, stored, integer, numbers, factor, offset)
    return ColumnNumbers(column, substitute(stored, {word: k}), integer, numbers, factor, offset, deep=True)


def _is_row(load: TensorLoad, k: Var, word: Var) -> bool:
    """Whether ``k`` picks the row of what is read, and nothing inside of it, where ``word`` moves by one."""
    *outer, last = load.indices
    picks = not uses(last, (k,)) and sum(uses(index, (k,)) for index in outer) == 1
    return picks and is_side_by_side(load, word, sym.Analyzer())
