"""Products of words of four bytes, a word in each lane of a vector: by which instructions, for bytes of known
ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.products.forms.dot_forms import DOT_FORMS, add_offset, dot, dot_form, offset_word
from tilec.ir.analysis.numbers.ranges import bounds, limits
from tilec.ir.exprs import choice_of, dtype_of, int_value, same, transform
from tilec.lowering.math.vectors import literal, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var
    from tvm.sym import Analyzer

    from tilec.backends.cpu.products.forms.dot_forms import DotForm
    from tilec.targets import Target

BYTES = ("int8", "uint8")
#: Sums of two products of unsigned bytes up to 127 by signed ones are exact in 16 bits.
_HALF = 127
#: vpmaddubsw: products of unsigned bytes by signed ones, the sums of two saturated to 16 bits.
_PAIRS_OF_BYTES = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.avx512.pmaddubs.w.512",
}
#: Words of the instructions of each, by their lanes.
_LANES = {"vpdpbusd": (8, 16), "pmaddwd": (4, 8, 16), "sdot": (4,)}


@dataclass(frozen=True, eq=False)
class Bytes:
    """``words`` hold numbers from ``low`` to ``high``, four each."""

    words: Expr
    low: int
    high: int

    @property
    def is_unsigned(self) -> bool:
        """Whether the bytes are numbers without a sign."""
        return _is_unsigned(self.low, self.high)


def _is_unsigned(low: int, high: int) -> bool:
    return low >= 0 and high > _HALF


def names_of(read: Sequence[TensorLoad]) -> list[Var]:
    """Names for elements, one for those that are the same."""
    names: list[Var] = []
    for number, load in enumerate(read):
        known = (name for name, other in zip(names, read[:number], strict=False) if same(load, other))
        found = next(known, None)
        names.append(tirx.Var("byte", str(load.source.dtype)) if found is None else found)
    return names


def named(factor: Expr, names: Sequence[Var]) -> Expr:
    """A factor that has names in place of the elements that it reads, in their order."""
    left = iter(names)
    return transform(factor, lambda node: next(left, None) if isinstance(node, TensorLoad) else None)


def byte_range(factor: Expr, analyzer: Analyzer) -> tuple[int, int] | None:
    """The least and the largest number that a factor may be; None where bytes, with a sign or without, do not
    hold all of them."""
    signed = _signed_of(factor)
    low, high = bounds(factor if signed is None else signed, analyzer)
    if signed is not None:
        low, high = 0, max(-low, high)
    held = any(limits(kind)[0] <= low and high <= limits(kind)[1] for kind in BYTES)
    return (low, high) if held else None


def _signed_of(factor: Expr) -> Expr | None:
    """The number of which a factor is the absolute value, written as a choice; None for another factor."""
    choice = choice_of(factor)
    if choice is None:
        return None
    cond, value, other = choice
    tests = isinstance(cond, tirx.GE) and same(cond.a, value) and int_value(cond.b) == 0
    turned = isinstance(other, tirx.Sub) and int_value(other.a) == 0 and same(other.b, value)
    return value if tests and turned else None


def in_bytes(factor: Expr) -> Expr:
    """The bits of a factor, computed in bytes where it is how far two bytes lie apart."""
    signed = _signed_of(factor)
    if not isinstance(signed, tirx.Sub):
        return factor
    sides = (signed.a, signed.b)
    left, right = (side.value if isinstance(side, tirx.Cast) else side for side in sides)
    if dtype_of(left) not in BYTES or dtype_of(left) != dtype_of(right):
        return factor
    return tirx.Sub(tirx.Max(left, right), tirx.Min(left, right))


def ones(lanes: int) -> Bytes:
    """Words of bytes that are 1."""
    return Bytes(literal(0x01010101, "int32", lanes), 1, 1)


def are_multiplied(form: DotForm, left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether `add_products` takes words of bytes in these ranges: not two that need all 8 bits, where an
    instruction multiplies signed ones alone."""
    return form.name != "sdot" or not (_is_unsigned(*left) and _is_unsigned(*right))


def byte_form(target: Target, lanes: int) -> DotForm | None:
    """The instruction that adds up products of words of signed bytes in so many lanes; None without one."""
    form = dot_form(target, "int8", "int8", "int32")
    return form if form is not None and lanes in _LANES[form.name] else None


def add_products(form: DotForm, left: Bytes, right: Bytes, total: Expr, lanes: int) -> Expr | None:
    """``total`` plus the products of the words, by ``form``; None where one of the two has to be signed, and
    is not."""
    if right.is_unsigned or (left.low < 0 <= right.low):
        left, right = right, left
    if form.name == "pmaddwd":
        return total + _by_pairs(left, right, lanes)
    if right.is_unsigned:
        return _unsigned(form, left.words, right.words, total, lanes) if form.name == "vpdpbusd" else None
    if form.name == "sdot":
        return _signed(form, left, right, total, lanes)
    if left.low >= 0:
        return _unsigned_by_signed(form, left.words, right.words, total, lanes)
    made = _unsigned_by_signed(form, add_offset(form, left.words), right.words, total, lanes)
    offsets = spread(offset_word(form), lanes)
    zero = literal(0, "int32", lanes)
    return made - _unsigned_by_signed(form, offsets, right.words, zero, lanes)


def _unsigned_by_signed(form: DotForm, left: Expr, right: Expr, total: Expr, lanes: int) -> Expr:
    return dot(form, right, left, total, lanes)


def _unsigned(form: DotForm, left: Expr, right: Expr, total: Expr, lanes: int) -> Expr:
    """By products with signed bytes, 128 less than one operand's, and twice those with 64."""
    moved = tirx.bitwise_xor(right, spread(offset_word(form), lanes))
    halves = literal(0x40404040, "int32", lanes)
    half = _unsigned_by_signed(form, left, halves, literal(0, "int32", lanes), lanes)
    made = _unsigned_by_signed(form, left, moved, total, lanes)
    return made + half * literal(2, "int32", lanes)


def _signed(form: DotForm, left: Bytes, right: Bytes, total: Expr, lanes: int) -> Expr:
    """By products of signed bytes; of unsigned ones 128 less, and twice 64 times the others."""
    if not left.is_unsigned:
        return dot(form, left.words, right.words, total, lanes)
    moved = tirx.bitwise_xor(left.words, spread(offset_word(DOT_FORMS["vpdpbusd"]), lanes))
    halves = literal(0x40404040, "int32", lanes)
    half = dot(form, halves, right.words, literal(0, "int32", lanes), lanes)
    return dot(form, moved, right.words, total, lanes) + half * literal(2, "int32", lanes)


def _by_pairs(left: Bytes, right: Bytes, lanes: int) -> Expr:
    """By pairs of 16 bits: sums of two products where they fit, else bytes of even and of odd places."""
    pair = DOT_FORMS["pmaddwd"]
    zero = literal(0, "int32", lanes)
    if left.low >= 0 and not left.is_unsigned:
        kind = f"int8x{4 * lanes}"
        sums = tirx.call_llvm_pure_intrin(
            f"int16x{2 * lanes}",
            _PAIRS_OF_BYTES[lanes],
            tirx.reinterpret(kind, left.words),
            tirx.reinterpret(kind, right.words),
        )
        ones = literal(0x00010001, "int32", lanes)
        return dot(pair, tirx.reinterpret(f"int32x{lanes}", sums), ones, zero, lanes)
    (even, odd), (even_too, odd_too) = _halves(left, lanes), _halves(right, lanes)
    return dot(pair, odd, odd_too, dot(pair, even, even_too, zero, lanes), lanes)


def _halves(numbers: Bytes, lanes: int) -> tuple[Expr, Expr]:
    """The bytes of even and of odd places as words of two 16-bit numbers."""
    kind = "uint16" if numbers.low >= 0 else "int16"
    wide, eight = f"{kind}x{2 * lanes}", literal(8, kind, 2 * lanes)
    whole = tirx.reinterpret(wide, numbers.words)
    even = tirx.shift_right(tirx.shift_left(whole, eight), eight)
    odd = tirx.shift_right(whole, eight)
    return tirx.reinterpret(f"int32x{lanes}", even), tirx.reinterpret(f"int32x{lanes}", odd)
