"""Packed numbers become floats where they lie in their element.

    q = B[i] >> s & 15; from_natural(q) - 8    ->    q = B[i]; field(q, 15, s, 8)

The mantissa of a float of 2**(23 - s) counts ones from bit s on: a mask that takes the exponent along and a
subtraction, of which the 8 becomes a part, stand for a shift, a mask, the exponent and two subtractions. Bits
too high for that are moved by 16 first, which those of one element share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import tvm_ffi
from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.bit_fields import BitField, bit_field
from tilec.backends.cuda.device.floats import FIELD, FROM_NATURAL, FROM_SMALL
from tilec.backends.cuda.device.helper import called
from tilec.ir.exprs import cast_to, dtype_of, int32, int_value, walk
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.device.helper import Helper

_CONVERSIONS = (FROM_NATURAL, FROM_SMALL)
#: Bits of a float32 below its exponent; half of a word, and the widest numbers that lie below those bits
#: wherever in that half they begin.
_MANTISSA, _HALF, _WIDEST = 23, 16, 8
#: What is added to a number, at most: with any of the powers of two it is a whole number that a float has.
_FAR = 1 << 15


def with_float_fields(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A device function with its packed numbers made so."""
    found = _Fields()
    tvm_ffi.structural_walk(function.body, [(Call, found.see_call)])
    if not found.converted:
        return function
    found.learn(function.body)
    made = [(tirx.Bind, found.named), (Call, found.converted_call), ((tirx.Add, tirx.Sub), _with_offset)]
    return function.with_body(tvm_ffi.structural_map(function.body, made))


@dataclass(frozen=True)
class _Number:
    """``width`` bits of ``word`` from ``shift`` on, plus ``offset``."""

    word: Expr
    shift: Expr
    width: int
    offset: int

    def float_of(self, word: Expr) -> Expr:
        """It as float32, by a name of the word or the word."""
        mask = tirx.const((1 << self.width) - 1, "uint32")
        return FIELD.call(word, mask, self.shift, tirx.const(float(-self.offset), "float32"))


@dataclass(eq=False)
class _Fields:
    """What a function converts, and the names there of numbers that nothing else uses."""

    analyzer: sym.Analyzer = field(default_factory=sym.Analyzer)
    converted: Counter[Var | None] = field(default_factory=Counter)
    used: Counter[Var] = field(default_factory=Counter)
    words: dict[Var, tuple[Var, _Number]] = field(default_factory=dict)

    def see_call(self, call: Call) -> None:
        """Counts conversions, those of a name by it."""
        given = _given(call, *_CONVERSIONS)
        if given:
            number, _ = _parted(given[0])
            self.converted[number if isinstance(number, Var) else None] += 1

    def learn(self, body: tirx.Stmt) -> None:
        """Counts names, those that define them, too, and learns which numbers variables take."""
        names: list[tirx.Bind] = []

        def use(var: Var) -> None:
            self.used[var] += 1

        def loop(stmt: tirx.For) -> None:
            self.analyzer.bind(stmt.loop_var, tvm_ir.Range.from_min_extent(stmt.min, stmt.extent))

        def thread(stmt: tirx.AttrStmt) -> None:
            if stmt.attr_key == "thread_extent":
                self.analyzer.bind(stmt.node.var, tvm_ir.Range.from_min_extent(int32(0), stmt.value))

        seen = [(tirx.For, loop), (tirx.AttrStmt, thread), (tirx.Bind, names.append), (Var, use)]
        tvm_ffi.structural_walk(body, seen)
        for name in names:
            if dtype_of(name.value) == "int32" and not any(map(_depends, walk(name.value))):
                self.analyzer.bind(name.var, name.value)

    def named(self, stmt: tirx.Bind) -> tirx.Bind:
        """The word in the place of a number that nothing but conversions uses."""
        if not self.converted[stmt.var] or self.used[stmt.var] != self.converted[stmt.var] + 1:
            return stmt
        number = self._number(stmt.value)
        if number is None:
            return stmt
        name = tirx.Var(str(stmt.var.name), "uint32")
        self.words[stmt.var] = name, number
        return tirx.Bind(name, number.word)

    def converted_call(self, call: Call) -> Expr:
        """A conversion by the bits; any other call as it is."""
        given = _given(call, *_CONVERSIONS)
        if not given:
            return call
        name, more = _parted(given[0])
        if isinstance(name, Var):
            word, number = self.words.get(name, (name, None))
            return call if number is None else replace(number, offset=number.offset + more).float_of(word)
        number = self._number(given[0])
        return call if number is None else number.float_of(number.word)

    def _number(self, value: Expr) -> _Number | None:
        """The bits of a word that an integer is, where a float counts them in their place."""
        found = bit_field(value, self.analyzer)
        if found is None or found.signed or abs(found.offset) > _FAR or _is_whole(found):
            return None
        if any(map(_depends, walk(found.shift))):
            return None
        highest = self.analyzer.const_int_bound(found.shift).max_value
        word = cast_to(found.load, "uint32")
        if highest + found.width <= _MANTISSA:
            return _Number(word, found.shift, found.width, found.offset)
        if found.width > _WIDEST or highest >= 2 * _HALF:
            return None
        half = cast_to(found.shift & int32(_HALF), "uint32")
        return _Number(word >> half, found.shift & int32(_HALF - 1), found.width, found.offset)


def _parted(number: Expr) -> tuple[Expr, int]:
    """A number without conversions to wider types and what is added to it in 32 bits, and that."""
    more = 0
    while True:
        if isinstance(number, tirx.Cast) and _bytes(number.value) <= _bytes(number):
            number = number.value
            continue
        step = int_value(number.b) if isinstance(number, (tirx.Add, tirx.Sub)) else None
        if step is None or dtype_of(number) != "int32":
            return number, more
        more += step if isinstance(number, tirx.Add) else -step
        number = number.a


def _bytes(number: Expr) -> int:
    return element_bytes(dtype_of(number))


def _depends(node: Expr) -> bool:
    """Whether a number is not the same wherever it is computed."""
    return isinstance(node, (Call, TensorLoad))


def _is_whole(found: BitField) -> bool:
    """Whether a number is all of its element, which needs no mask."""
    return found.width == 8 * _bytes(found.load)


def _given(expr: Expr, *helpers: Helper) -> tuple[Expr, ...]:
    """What one of the helpers is given; nothing where none of them is called."""
    function = called(expr)
    return function.operands if function is not None and function.helper in helpers else ()


def _with_offset(total: tirx.Add | tirx.Sub) -> Expr:
    """A number of bits with what is added to it or taken away; any other sum as it is."""
    operands = _given(total.a, FIELD)
    if not operands or not isinstance(total.b, tirx.FloatImm):
        return total
    *given, less = operands
    away = float(total.b.value) if isinstance(total, tirx.Sub) else -float(total.b.value)
    if not isinstance(less, tirx.FloatImm) or not away.is_integer() or abs(less.value + away) > _FAR:
        return total
    return FIELD.call(*given, tirx.const(less.value + away, "float32"))
