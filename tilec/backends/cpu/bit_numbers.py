"""Numbers that depend on a few bits of a word and on nothing else, and that bfloat16 holds exactly: weights
of two to four bits, less an offset or as a choice among constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import and_, or_, xor
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cpu.products.forms.dot_forms import dot_form
from tilec.ir.exprs import dtype_of, each_once, int_value, same, transform, walk

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.products.forms.dot_forms import DotForm
    from tilec.targets import Target

#: What the analyzer does not fold.
_COMBINED = {tirx.BitwiseAnd: and_, tirx.BitwiseOr: or_, tirx.BitwiseXor: xor}
_WORDS = ("int32", "uint32")
_WIDEST = 512
#: Values that the lower bits of an index choose from: as many as a register of 512 bits has of 16 bits.
COUNT = 32


@dataclass(frozen=True, eq=False)
class BitNumber:
    """What the lower bits of ``word >> shift`` choose from ``values``, upper halves of float32 numbers, of
    which the first ``choices`` come again and again."""

    word: Var
    shift: int
    values: tuple[int, ...]
    choices: int

    @property
    def numbers(self) -> list[float]:
        """What is chosen from, as numbers."""
        halves = self.values[: self.choices]
        return [struct.unpack("<f", (half << 16).to_bytes(4, "little"))[0] for half in halves]


def has_tables(target: Target) -> bool:
    """Whether lanes look up what numbers of four bits become."""
    return target.arch == "x86_64" and target.vector_bits == _WIDEST


def pair_form(target: Target) -> DotForm | None:
    """The form of products of pairs that looks numbers up; None where the target has none, or multiply-adds
    of float32 are as fast."""
    form = dot_form(target, "bfloat16", "bfloat16", "float32")
    return form if form is not None and target.arch == "x86_64" else None


def bit_number(expr: Expr) -> BitNumber | None:
    """``expr``, a float32, as bits of a variable of 32 bits choose it; None where it is something else."""
    fields = each_once(node for node in walk(expr) if isinstance(node, tirx.BitwiseAnd))
    mask = int_value(fields[0].b) if len(fields) == 1 else None
    if mask is None or not 0 < mask < COUNT or mask & mask + 1:
        return None
    shifted = fields[0].a
    shift = int_value(shifted.b) if isinstance(shifted, tirx.RShift) else 0
    word = shifted.a if isinstance(shifted, tirx.RShift) else shifted
    if shift is None or not isinstance(word, Var) or dtype_of(word) not in _WORDS:
        return None
    values = [_upper_half(expr, fields[0], number) for number in range(mask + 1)]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return BitNumber(word, shift, tuple(known) * (COUNT // len(values)), len(values))


def _upper_half(expr: Expr, field: Expr, number: int) -> int | None:
    """The upper half of ``expr`` where ``field`` is ``number``; None where it is no constant, or the lower
    half is not 0."""
    there = tirx.const(number, dtype_of(field))
    value = _folded(transform(expr, lambda node: there if same(node, field) else None))
    if not isinstance(value, tirx.FloatImm) or dtype_of(value) != "float32":
        return None
    upper, lower = divmod(int.from_bytes(struct.pack("<f", value.value), "little"), 1 << 16)
    return upper if lower == 0 else None


def _folded(expr: Expr) -> Expr:
    """``expr`` with constants in place of what constants make, bits that are combined among it."""

    def visit(node: Expr) -> Expr | None:
        made = _COMBINED.get(type(node))
        if made is None:
            return None
        sides = [int_value(_folded(side)) for side in (node.a, node.b)]
        known = [side for side in sides if side is not None]
        return tirx.const(made(*known), dtype_of(node)) if len(known) == len(sides) else None

    return sym.Analyzer().simplify(transform(expr, visit))
