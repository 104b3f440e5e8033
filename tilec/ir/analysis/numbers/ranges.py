"""Whether integer arithmetic stays inside of its type, by the ranges of its operands; and expressions of
which TVM's analyzer, which takes all arithmetic for that of whole numbers, draws right conclusions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import tvm
from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import int_value, operands, over, rebuild, scalar_dtype, transform, walk
from tilec.ir.foreign import is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm.ir import Expr
    from tvm.sym import Analyzer

    #: Whether a variable, or a buffer's elements, are whole numbers to the author.
    Counts = Callable[[Var], bool]
    #: What was found of an expression before, else what a function finds.
    Kept = Callable[[Expr, Callable[[Expr], Expr]], Expr]

#: The operations whose range the analyzer gives before it is cut to the type.
_UNCUT = (tirx.Add, tirx.Sub, tirx.Mul)
#: The operations that wrap around where they are unsigned.
_WRAPPING = {*_UNCUT, tirx.LShift}
#: What `_is_suspect` has to look at.
_SUSPECTS = {*_WRAPPING, tirx.Cast}
#: The analyzer's word for no bound.
_ENDLESS = (1 << 63) - 1
#: What TVM raises where it comes to a number beyond its type; of an unsigned one below 0 it takes that for a
#: mistake of its own.
BEYOND_TYPE = (ValueError, tvm.error.InternalError)
#: The integer types whose arithmetic is followed.
SHORT = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


@cache
def limits(dtype: str) -> tuple[int, int]:
    """The lowest and the highest number of an integer type."""
    bits = int(dtype.lstrip("uint"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def cut(number: int, dtype: str) -> int:
    """A number as an integer type holds it, wrapped around."""
    low, high = limits(dtype)
    return (number - low) % (high - low + 1) + low


@cache
def has_all(dtype: str, other: str) -> bool:
    """Whether an integer type has all numbers of another one."""
    (low, high), (least, most) = limits(dtype), limits(other)
    return low <= least and most <= high


def stays_inside(made: Expr, analyzer: Analyzer) -> bool:
    """Whether a sum, a difference or a product of integers of up to 32 bits, of any lanes, is known to fit
    its type."""
    dtype = scalar_dtype(made)
    return isinstance(made, _UNCUT) and dtype in SHORT and _holds(dtype, made, analyzer)


def bounds(value: Expr, analyzer: Analyzer) -> tuple[int, int]:
    """The least and the greatest number that an integer expression of up to 32 bits may be."""
    dtype, cut = scalar_dtype(value), _cut(as_types_have_it(value, analyzer), analyzer)
    if not _holds(dtype, cut, analyzer):
        return limits(dtype)
    bound = analyzer.const_int_bound(cut)
    return bound.min_value, bound.max_value


def _cut(expr: Expr, analyzer: Analyzer) -> Expr:
    """``expr`` with all arithmetic that may wrap around made opaque, that on what does included."""
    if (
        isinstance(expr, TensorLoad)
        or not operands(expr)
        or _is_hidden(expr)
        or "float" in scalar_dtype(expr)
    ):
        return expr
    made = rebuild(expr, tuple(_cut(part, analyzer) for part in operands(expr)))
    return _hidden(made) if isinstance(made, _UNCUT) and not stays_inside(made, analyzer) else made


def _holds(dtype: str, value: Expr, analyzer: Analyzer) -> bool:
    low, high = limits(dtype)
    bound = analyzer.const_int_bound(value)
    known = bound.min_value > -_ENDLESS and bound.max_value < _ENDLESS
    return bool(known and low <= bound.min_value and bound.max_value <= high)


def as_types_have_it(expr: Expr, analyzer: Analyzer) -> Expr:
    """``expr`` with everything that may wrap around (unsigned arithmetic, casts to integers that do not hold
    the value) made opaque: twice inverted, it may be any number of its type."""
    if not any(type(node) in _SUSPECTS and _is_suspect(node) for node in walk(expr)):
        return expr
    bare = _reopened(expr)
    return transform(bare, lambda node: _opaque(node, analyzer) if _is_suspect(node) else None)


def as_data_has_it(
    cond: Expr, analyzer: Analyzer, counts: Counts | None = None, kept: Kept | None = None
) -> Expr:
    """`as_types_have_it` of a condition, of signed arithmetic on data, too (`wraps_around`). ``kept`` has
    what was found of parts, which sums of sums ask for again and again."""

    def find(expr: Expr) -> Expr:
        bare = as_types_have_it(expr, analyzer)
        if not any(_is_signed(node) for node in walk(bare)):
            return bare
        return _Wrapping(analyzer, kept).made(bare, _origin(bare, analyzer, counts))

    return find(cond) if kept is None else kept(cond, find)


class _Origin(NamedTuple):
    """Whether data, and whether an index or a dim, takes part in a value, and the same of its operands: told
    once for all of an expression."""

    data: bool
    place: bool
    parts: tuple[_Origin, ...]


def _origin(expr: Expr, analyzer: Analyzer, counts: Counts | None) -> _Origin:
    parts = tuple(_origin(part, analyzer, counts) for part in operands(expr))
    if not _is_leaf(expr):
        return _Origin(any(part.data for part in parts), any(part.place for part in parts), parts)
    data = _is_data(expr, analyzer, counts)
    return _Origin(data, isinstance(expr, Var) and not data, parts)


class _Wrapping:
    """Makes signed arithmetic on data opaque that may wrap around."""

    def __init__(self, analyzer: Analyzer, kept: Kept | None) -> None:
        self._analyzer, self._kept = analyzer, kept

    def made(self, node: Expr, origin: _Origin) -> Expr:
        """A value, of which parts are known by now."""
        if self._kept is None or not _is_signed(node):
            return self._made(node, origin)
        return self._kept(node, lambda it: self._made(it, origin))

    def _made(self, node: Expr, origin: _Origin) -> Expr:
        if _is_hidden(node) or _meets_place(node, origin):
            return node
        if isinstance(node, tirx.FloorMod) and (int_value(node.b) or 0).bit_count() == 1:
            return tirx.FloorMod(self._whole(node.a, origin.parts[0]), node.b)
        made = _over_parts(node, origin, self.made)
        wraps = origin.data and _is_signed(node) and not _holds(scalar_dtype(made), made, self._analyzer)
        return _hidden(made) if wraps else made

    def _whole(self, part: Expr, origin: _Origin) -> Expr:
        """What wraps around by a multiple of the divisor, which makes no difference."""
        return _over_parts(part, origin, self._whole) if _is_signed(part) else self.made(part, origin)


def _over_parts(node: Expr, origin: _Origin, made: Callable[[Expr, _Origin], Expr]) -> Expr:
    old = operands(node)
    return over(node, old, tuple(made(part, its) for part, its in zip(old, origin.parts, strict=True)))


def _meets_place(node: Expr, origin: _Origin) -> bool:
    """Whether an index or a dim is added to data: the data is a place, too."""
    return origin.place and _is_signed(node)


def wraps_around(expr: Expr, analyzer: Analyzer, counts: Counts | None, kept: Kept | None = None) -> bool:
    """Whether signed arithmetic may wrap around: that on data (`has_data`) does. Indices, dims, counters of
    loops, and what leads to them are whole numbers to the author. ``kept`` as of `as_data_has_it`."""
    if not _is_signed(expr) or not has_data(expr, analyzer, counts):
        return False
    made = rebuild(expr, tuple(as_data_has_it(part, analyzer, counts, kept) for part in operands(expr)))
    return not _holds(scalar_dtype(expr), made, analyzer)


def has_data(expr: Expr, analyzer: Analyzer, counts: Counts | None) -> bool:
    """Whether data takes part in a value. ``counts`` says of a variable, or of a buffer's elements, that they
    are none; without it, data are elements and variables of which nothing is known."""
    return any(_is_data(leaf, analyzer, counts) for leaf in _leaves(expr))


def has_place(expr: Expr, analyzer: Analyzer, counts: Counts | None) -> bool:
    """Whether an index or a dim takes part in a value; ``counts`` as of `has_data`."""
    return any(type(leaf) is Var and not _is_data(leaf, analyzer, counts) for leaf in _leaves(expr))


def _leaves(expr: Expr) -> Iterator[Expr]:
    """The variables, the elements, the floats and the results of foreign functions that make an integer."""
    left = [expr]
    while left:
        node = left.pop()
        if _is_leaf(node):
            yield node
        else:
            left.extend(operands(node))


def _is_leaf(node: Expr) -> bool:
    return type(node) in (TensorLoad, Var) or is_foreign(node) or "float" in scalar_dtype(node)


def _is_data(leaf: Expr, analyzer: Analyzer, counts: Counts | None) -> bool:
    if type(leaf) is TensorLoad:
        return counts is None or not counts(leaf.source)
    if type(leaf) is Var and "int" in scalar_dtype(leaf):
        return not (_holds_less(leaf, analyzer) if counts is None else counts(leaf))
    return True


def _is_signed(node: Expr) -> bool:
    return type(node) in _WRAPPING and scalar_dtype(node).startswith("int")


def _holds_less(var: Var, analyzer: Analyzer) -> bool:
    """Whether a variable is known not to be some number of its type."""
    bound, (low, high) = analyzer.const_int_bound(var), limits(scalar_dtype(var))
    return bool(bound.min_value > max(low, -_ENDLESS) or bound.max_value < min(high, _ENDLESS))


def as_passes_have_it(made: Expr, value: Expr, analyzer: Analyzer) -> Expr:
    """``made``, the integer ``value`` as one of another type, so that no pass takes it for less than it may
    be: TVM cuts the range of what is cast to that of a signed type; no uint8 as int8 is negative then."""
    dtype = scalar_dtype(made)
    if not dtype.startswith("int") or "int" not in scalar_dtype(value) or has_all(dtype, scalar_dtype(value)):
        return made
    inner, (low, high) = as_types_have_it(value, analyzer), limits(dtype)
    bound = analyzer.const_int_bound(inner)
    whole = bound.min_value <= low and high <= bound.max_value
    return made if whole or _holds(dtype, inner, analyzer) else _hidden(made)


def _reopened(expr: Expr) -> Expr:
    """`as_written` of what `as_types_have_it` alone has made opaque."""

    def visit(node: Expr) -> Expr | None:
        return _reopened(node.a.a) if _is_hidden(node) and not _is_signed(node.a.a) else None

    return transform(expr, visit) if any(_is_hidden(node) for node in walk(expr)) else expr


def as_written(expr: Expr) -> Expr:
    """``expr`` without what `as_types_have_it` put around parts of it: the form in which two may be compared,
    whatever was known when each was made opaque."""
    if not any(_is_hidden(node) for node in walk(expr)):
        return expr
    return transform(expr, lambda node: as_written(node.a.a) if _is_hidden(node) else None)


def with_bits(expr: Expr, analyzer: Analyzer) -> Expr:
    """``expr`` for the analyzer, which knows no range of what bits are joined to or flipped in: below the
    next power of two where both sides are, which a mask says."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.BitwiseXor, tirx.BitwiseOr)) or not scalar_dtype(node).startswith(
            "int"
        ):
            return None
        sides = [with_bits(side, analyzer) for side in operands(node)]
        found = [analyzer.const_int_bound(side) for side in sides]
        made, most = rebuild(node, tuple(sides)), max(bound.max_value for bound in found)
        if min(bound.min_value for bound in found) < 0 or most > limits("int32")[1]:
            return made
        return tirx.BitwiseAnd(made, tirx.const((1 << most.bit_length()) - 1, scalar_dtype(node)))

    joined = any(type(node) in (tirx.BitwiseXor, tirx.BitwiseOr) for node in walk(expr))
    return transform(expr, visit) if joined else expr


def _is_hidden(node: Expr) -> bool:
    return type(node) is tirx.BitwiseNot and type(node.a) is tirx.BitwiseNot


def _is_suspect(node: Expr) -> bool:
    kind = type(node)
    if kind is tirx.Cast:
        made, given = scalar_dtype(node), scalar_dtype(node.value)
        return "int" in made and "int" in given and not has_all(made, given)
    return kind in _WRAPPING and scalar_dtype(node).startswith("uint")


def _opaque(node: Expr, analyzer: Analyzer) -> Expr:
    dtype = scalar_dtype(node)
    if isinstance(node, tirx.Cast):
        inner = as_types_have_it(node.value, analyzer)
        made = tirx.Cast(node.ty, inner)
        return made if _holds(dtype, inner, analyzer) else _hidden(made)
    made = type(node)(as_types_have_it(node.a, analyzer), as_types_have_it(node.b, analyzer))
    return made if stays_inside(made, analyzer) else _hidden(made)


def _hidden(value: Expr) -> Expr:
    return tirx.BitwiseNot(tirx.BitwiseNot(value))
