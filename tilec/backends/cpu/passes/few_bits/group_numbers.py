"""Elements that a tile is converted to: stored numbers, moved and scaled by what groups of them share.

Ws[j, k] = float16(float32((int32(packed[j, k // 2]) >> k % 2 * 4 & 15) - zeros[j, k // 32]) * s[j, k // 32])
->
numbers  float32(int32(packed[j, t * 16 + p]) & 15) - z, float32(int32(packed[j, t * 16 + p]) >> 4 & 15) - z
z        float32(zeros[j, t])
scale    s[j, t]                                        for k = t * 32 + p * 2, and for the k behind it

A number may also be what a table has at one, as the code of weights has, or a float of 8 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import mul, or_
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.passes.few_bits.stored_tiles import CONVERTED
from tilec.ir.exprs import (
    cast_to,
    dtype_of,
    each_once,
    int_value,
    is_zero,
    loads,
    same,
    substitute,
    transform,
    uses,
    variables_of,
    with_part,
)
from tilec.lowering.analysis.counted import counted
from tilec.lowering.math.float8 import FLOAT8_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tvm.ir import Expr, Var

#: Elements of K that share their values, at most as many as one loop takes whole.
_GROUPS = (128, 64, 32, 16)
#: Numbers that lie in one stored integer, and whether these are apart along K.
_ORDERS = ((1, False), (2, False), (2, True), (4, False), (4, True), (8, False), (8, True))
#: Bits of a byte: numbers have no more, and types of tiles have all of these exactly.
BYTE = 8
#: Bits of types of stored integers.
STORED = {"int8": BYTE, "uint8": BYTE, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32}
_BITS = STORED | dict.fromkeys(FLOAT8_TYPES, BYTE)


@dataclass(frozen=True, eq=False)
class GroupNumbers:
    """Elements along K in groups of ``size``: the ones whose number is a multiple of the numbers in an
    integer and those behind them are ``scale`` times one of ``numbers`` each, float32 values of ``integer``
    and of ``shared``, names of values that the group has in common, plus ``offset`` where the group has one.
    ``stored`` is what memory has at ``at`` of group ``group``; its numbers lie side by side along K, or
    ``apart``, each as many elements behind the one before as the group has of what memory has. An integer is
    as many of these as are ``joined``, the first one in its lowest bits, with the bits of ``flipped`` turned
    over; a float of 8 bits is a float32 in its place. Numbers may be as many ``times`` too large, powers of
    two, by which activations are divided."""

    group: Var
    at: Var
    size: int
    stored: TensorLoad
    integer: Var
    numbers: tuple[Expr, ...]
    shared: dict[Var, Expr]
    scale: Expr
    apart: bool = False
    joined: int = 1
    flipped: int = 0
    offset: Expr | None = None
    times: tuple[int, ...] = ()

    @property
    def each(self) -> int:
        """Numbers in an integer."""
        return len(self.numbers)

    @property
    def width(self) -> int:
        """Integers of a group."""
        return self.size // self.each

    def element(self, integer: Expr, number: int) -> Expr:
        """Where along K, from the first group on, ``number`` of ``integer`` is, of all groups one."""
        each = self.each // self.joined
        if not self.apart:
            return integer * self.each + number
        stored, stride = integer * self.joined + number // each, self.width * self.joined
        return stored // stride * self.size + stored % stride + number % each * stride

    def read(self, at: Expr) -> Expr:
        """Integer ``at`` of a group."""
        if dtype_of(self.stored) in FLOAT8_TYPES:
            return cast_to(substitute(self.stored, {self.at: at}), dtype_of(self.integer))
        parts = [substitute(self.stored, {self.at: at * self.joined + part}) for part in range(self.joined)]
        whole = parts[0] if self.joined == 1 else _joined(parts, dtype_of(self.integer))
        if not self.flipped:
            return whole
        return cast_to(cast_to(whole, "int32") ^ _signed(self.flipped), dtype_of(whole))

    @property
    def is_zero_beyond(self) -> bool:
        """Whether all elements are 0 where nothing but zeros is read, as beyond a tensor."""
        if is_zero_beyond(self.scale):
            return True
        zeros = self.shared | {self.integer: tirx.const(0, dtype_of(self.integer))}
        return not self.tables and all(is_zero_beyond(substitute(each, zeros)) for each in self.numbers)

    @property
    def are_plain(self) -> bool:
        """Whether integers are one number each and have no scales."""
        return self.each == 1 and next(loads(self.scale), None) is None

    @property
    def tables(self) -> list[TensorLoad]:
        """What numbers have of tables."""
        return [load for number in self.numbers for load in loads(number)]


@dataclass(frozen=True, eq=False)
class _Number:
    """``number`` times ``factors``, in float32; ``shared`` are names in it."""

    number: Expr
    factors: tuple[Expr, ...] = ()
    shared: tuple[tuple[Var, Expr], ...] = ()

    @property
    def scale(self) -> Expr:
        """The product of the factors."""
        return reduce(mul, self.factors) if self.factors else tirx.const(1.0, "float32")

    def moved(self, other: Expr, kind: type[tirx.Add | tirx.Sub], first: bool) -> _Number:
        """Its sum with ``other``, or their difference; it stands ``first``. It is scaled for that."""
        names = list(self.shared)
        whole = self.number * _named(self.scale, "scale", names) if self.factors else self.number
        value = _named(other, "shift", names)
        return _Number(kind(whole, value) if first else kind(value, whole), (), tuple(names))


def _named(value: Expr, name: str, names: list[tuple[Var, Expr]]) -> Expr:
    """A name for ``value``, which joins ``names``; a number as it is."""
    if isinstance(value, tirx.FloatImm):
        return value
    names.append((tirx.Var(name, "float32"), value))
    return names[-1][0]


def group_numbers(
    value: Expr, trip: Var, first: Expr, k: Var, depth: int, multiple: int
) -> GroupNumbers | None:
    """What ``value`` is made of, an element at ``k`` < ``depth`` of trip ``trip`` of a loop along K that
    starts at ``first`` and has a ``multiple`` of trips; groups are counted from there. None where it is not
    made so. The largest groups are found: what shorter ones share varies in them."""
    for size in _GROUPS:
        if depth % size and (size % depth or multiple % (size // depth)):
            continue
        for each, apart in _ORDERS:
            found = _in_groups(value, _Steps(trip, first, k, depth, size, each, apart))
            if found is not None:
                return found
    return None


@dataclass(frozen=True, eq=False)
class _Steps:
    """Trips of a loop along K, from ``first`` on, of ``depth`` elements, in groups of ``size``, of which
    ``each`` lie in an integer, side by side or ``apart``. A trip has several groups, or a group trips."""

    trip: Var
    first: Expr
    k: Var
    depth: int
    size: int
    each: int
    apart: bool

    def places(self, group: Var, at: Var) -> Iterator[Mapping[Var, Expr]]:
        """Trip and k of each number of integer ``at`` of ``group``."""
        step, distance = (1, self.size // self.each) if self.apart else (self.each, 1)
        for number in range(self.each):
            trip, inside = self._place(group, at * step + number * distance)
            yield {
                self.trip: self.first + cast_to(trip, dtype_of(self.trip)),
                self.k: cast_to(inside, dtype_of(self.k)),
            }

    def _place(self, group: Var, inside: Expr) -> tuple[Expr, Expr]:
        """Trip and k of element ``inside`` of ``group``."""
        if self.size > self.depth:
            return group * (self.size // self.depth) + inside // self.depth, inside % self.depth
        parts = self.depth // self.size
        return group // parts, group % parts * self.size + inside


def _in_groups(value: Expr, steps: _Steps) -> GroupNumbers | None:
    """``value`` in such groups."""
    group, at = tirx.Var("t", "int32"), tirx.Var("p", "int32")
    analyzer = counted((at,), (steps.size // steps.each,))
    found = [split(simplified(substitute(value, places), analyzer), at) for places in steps.places(group, at)]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        return None
    first, *others = known
    stored = each_once(load for part in known for load in loads(part.number) if not _is_table(load))
    if len(stored) != 1 or not is_side_by_side(stored[0], at, analyzer):
        return None
    if dtype_of(stored[0]) not in _BITS or bits_of(stored[0]) > BYTE * steps.each:
        return None
    if not all(_is_alike(first, part) for part in others):
        return None
    kind = "float32" if dtype_of(stored[0]) in FLOAT8_TYPES else dtype_of(stored[0])
    integer, read = tirx.Var("stored", kind), cast_to(stored[0], kind)
    numbers = tuple(
        with_part(substitute(part.number, _renamed(part, first)), read, integer) for part in known
    )
    shared, scale = dict(first.shared), first.scale
    return GroupNumbers(group, at, steps.size, stored[0], integer, numbers, shared, scale, steps.apart)


def _joined(parts: list[Expr], kind: str) -> Expr:
    """Stored integers as one of type ``kind``, the first one in its lowest bits; joined without a sign, what
    numbers are read by is no index that is too long for its type."""
    bits, plain = STORED[dtype_of(parts[0])], f"u{kind}"
    words = [cast_to(cast_to(part, f"uint{bits}"), plain) for part in parts]
    shifted = (word << tirx.const(bits * at, plain) if at else word for at, word in enumerate(words))
    return cast_to(reduce(or_, shifted), kind)


def _signed(bits: int) -> Expr:
    """32 bits as an int32."""
    return tirx.const(bits - (1 << 32) if bits >> 31 else bits, "int32")


def bits_of(stored: TensorLoad) -> int:
    """Bits of what memory has."""
    return _BITS[dtype_of(stored)]


def _is_alike(one: _Number, other: _Number) -> bool:
    """Whether two numbers share their values."""
    if len(one.shared) != len(other.shared) or not same(one.scale, other.scale):
        return False
    return all(same(a, b) for (_, a), (_, b) in zip(one.shared, other.shared, strict=True))


def _renamed(part: _Number, first: _Number) -> dict[Var, Expr]:
    return {old: new for (old, _), (new, _) in zip(part.shared, first.shared, strict=True)}


def simplified(expr: Expr, analyzer: sym.Analyzer) -> Expr:
    """``expr`` with indices of loads and shifts simplified; floats are left as they are."""

    def index_of(index: Expr) -> Expr:
        """An index; of what is read for one as a value."""
        plain = next(loads(index), None) is None
        return analyzer.simplify(index) if plain else transform(index, visit)

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            return tirx.BufferLoad(node.source, [index_of(index) for index in node.indices])
        if isinstance(node, tirx.RShift) and int_value(analyzer.simplify(node.b)) == 0:
            return transform(node.a, visit)
        if next(loads(node), None) is not None:
            return None
        if isinstance(node, tirx.Cast) and dtype_of(node) in STORED:
            return _of_known(node, analyzer)
        return analyzer.simplify(node) if dtype_of(node) in ("int32", "int64") else None

    return transform(expr, visit)


def within(value: Expr, extents: Mapping[Var, int | None]) -> Expr:
    """``value`` with indices of as few variables as it takes where each is below its extent (None: a run-time
    one): ``(ko * 128 + k) // 128`` of 128 elements along K does not vary with ``k``."""
    known = {var: extent for var, extent in extents.items() if extent}
    return simplified(value, counted([*known], [*known.values()]))


def _of_known(node: tirx.Cast, analyzer: sym.Analyzer) -> Expr | None:
    """An integer that is cast, where it is known and every type has it."""
    simple = analyzer.simplify(node.value) if dtype_of(node.value) in ("int32", "int64") else node.value
    known = int_value(simple)
    return None if known is None or not 0 <= known < 1 << 7 else tirx.const(known, dtype_of(node))


def split(expr: Expr, at: Var, known: tuple[Var, ...] = ()) -> _Number | None:
    """``expr`` by a number that varies with ``at``, and may with what is ``known``; None where it is not made
    of one. Roundings to types of tiles are left out."""
    if _is_number(expr, at, known):
        return _Number(cast_to(expr, "float32"))
    if isinstance(expr, tirx.Cast) and dtype_of(expr) in CONVERTED:
        return split(expr.value, at, known)
    if isinstance(expr, (tirx.Mul, tirx.Add, tirx.Sub)):
        return _split_in_two(expr, at, known)
    return _Number(cast_to(expr, "float32")) if _is_coded(expr, at) else None


def _split_in_two(expr: tirx.Mul | tirx.Add | tirx.Sub, at: Var, known: tuple[Var, ...]) -> _Number | None:
    """A product, a sum or a difference, of which one side varies; of integers no product."""
    first, second = uses(expr.a, (at,)), uses(expr.b, (at,))
    is_float = dtype_of(expr) in CONVERTED
    if first == second or not (is_float or dtype_of(expr) == "int32"):
        return None
    inner, other = split(expr.a if first else expr.b, at, known), _as_float(expr.b if first else expr.a)
    if inner is None:
        return None
    if not isinstance(expr, tirx.Mul):
        return inner.moved(other, type(expr), first)
    return _Number(inner.number, (*inner.factors, other), inner.shared) if is_float else None


def _as_float(value: Expr) -> Expr:
    known = int_value(value)
    return cast_to(value, "float32") if known is None else tirx.const(float(known), "float32")


def _is_number(expr: Expr, at: Var, known: tuple[Var, ...] = ()) -> bool:
    """Whether an integer is a value of one stored integer alone, or what memory has a float of 8 bits."""
    if isinstance(expr, TensorLoad) and dtype_of(expr) in FLOAT8_TYPES:
        return uses(expr, (at,))
    found = each_once(loads(expr))
    if len(found) != 1 or not uses(found[0], (at,)) or not dtype_of(expr).startswith(("int", "uint")):
        return False
    return all(var in known for var in variables_of([_without_loads(expr)]))


def _is_coded(expr: Expr, at: Var) -> bool:
    """Whether a float is an element of a table at such an integer, the same table for all groups."""
    if not isinstance(expr, TensorLoad) or dtype_of(expr) not in CONVERTED:
        return False
    *outer, last = expr.indices
    return _is_number(last, at) and all(int_value(index) is not None for index in outer)


def _is_table(load: TensorLoad) -> bool:
    """Whether ``load`` reads where another one says."""
    return any(next(loads(index), None) is not None for index in load.indices)


def _without_loads(expr: Expr) -> Expr:
    return transform(
        expr, lambda node: tirx.const(0, dtype_of(node)) if isinstance(node, TensorLoad) else None
    )


def is_side_by_side(load: TensorLoad, at: Var, analyzer: sym.Analyzer) -> bool:
    """Whether ``load`` moves by one element along the last axis with ``at``."""
    *outer, last = load.indices
    strides = load.source.strides
    near = not len(strides) or int_value(strides[-1]) == 1
    step = int_value(analyzer.simplify(substitute(last, {at: at + 1}) - last))
    return near and step == 1 and not any(uses(index, (at,)) for index in outer)


def is_zero_beyond(expr: Expr) -> bool:
    """Whether ``expr`` is 0 where all that it reads is."""
    return is_zero(sym.Analyzer().simplify(_without_loads(expr)))
