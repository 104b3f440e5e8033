"""Reductions by their kinds: where each starts, what takes two results together, and of what.

The one table of kinds. The language, the interpreter and the passes of all families ask it, so that a kind
without a row is an error wherever it is met, and never another reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: What takes two results together, in any order. Of "max" and "min" NaN is left out or kept, as a statement
#: says; the others are an operator of TIR each.
Join = Literal["sum", "max", "min", "bitand", "bitor", "bitxor"]
#: What a reduction of no element gives: 0, the lowest or the highest number of the type, all bits set.
Start = Literal["zero", "lowest", "highest", "ones"]


@dataclass(frozen=True)
class Reduction:
    """One kind: ``start`` changes no result that ``join`` takes together with it; of ``magnitudes`` elements,
    and an old result that a maximum goes on from, count without their signs."""

    join: Join
    start: Start
    magnitudes: bool = False

    @property
    def is_bitwise(self) -> bool:
        """Whether it is of bits, which integers alone have."""
        return self.join.startswith("bit")


REDUCTIONS = {
    "sum": Reduction("sum", "zero"),
    "abssum": Reduction("sum", "zero", magnitudes=True),
    "max": Reduction("max", "lowest"),
    "min": Reduction("min", "highest"),
    "absmax": Reduction("max", "zero", magnitudes=True),
    "bitand": Reduction("bitand", "ones"),
    "bitor": Reduction("bitor", "zero"),
    "bitxor": Reduction("bitxor", "zero"),
}
