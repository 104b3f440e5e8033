"""Expressions of C over the lanes of a group: a method for each kind of node of the grammar."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tree_sitter import Node

from tilec.emulate.foreign.memory import VECTORS, Operand, Pointer, Scalar, element, read, write
from tilec.emulate.foreign.syntax import CType, Function, described, only, part, string, text, unsupported
from tilec.emulate.instructions import registry
from tilec.emulate.lanes import Lanes
from tilec.emulate.library import library
from tilec.emulate.state import numbers
from tilec.errors import UnsupportedError

#: C's ranks of arithmetic types.
_RANK = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}
_NARROW = ("int8", "uint8", "int16", "uint16", "bool")
_COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
            ">=": operator.ge}  # fmt: skip
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_,
               "|": operator.or_, "^": operator.xor}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {"~": operator.invert, "-": operator.neg, "+": operator.pos}
_FIELDS = "xyzw"
#: What has a place, which a reference may stand for.
PLACES = ("identifier", "subscript_expression", "field_expression", "pointer_expression")
_ONE = Scalar(1, "int32")
#: A call, which may have to wait for other warps.
Running = Generator[str, None, "Operand | None"]


@dataclass
class Held:
    """A variable that is a pointer, a tensor map or a text."""

    value: Operand | None


@dataclass(eq=False)
class Expressions:
    """The expressions of one call of ``function``, run by ``entered``; ``lanes`` are those that run now,
    ``names`` its variables."""

    function: Function
    others: dict[str, Function]
    entered: Lanes
    names: dict[str, Pointer | Held] = field(default_factory=dict)
    lanes: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = self.entered

    def call(self, node: Node) -> Running:
        """A call, or assembly."""
        raise NotImplementedError

    @property
    def is_masked(self) -> bool:
        """Whether some of the lanes that came in do not run here."""
        return self.lanes.m is not self.entered.m

    # ---- values ----

    def effect(self, node: Node) -> Operand | None:
        """An expression that may have no value."""
        if node.type not in ("call_expression", "gnu_asm_expression"):
            run = getattr(self, f"_{node.type}", None)
            if run is None:
                raise unsupported(node.type.replace("_", " "), node)
            made: Operand | None = run(node)
            return made
        running = self.call(node)
        try:
            next(running)
        except StopIteration as ended:
            value: Operand | None = ended.value
            return value
        raise unsupported("value of a function that waits", node)

    def value(self, node: Node) -> Operand:
        """The value of an expression."""
        made = self.effect(node)
        if made is None:
            raise unsupported("value of this", node)
        return made

    def scalar(self, node: Node) -> Scalar:
        """The value of an expression that is a number."""
        made = self.value(node)
        if not isinstance(made, Scalar):
            raise unsupported("number for this", node)
        return made

    def test(self, node: Node) -> Any:
        """A condition."""
        return numbers.logical(self.scalar(node).value)

    def _number_literal(self, node: Node) -> Scalar:
        lower = text(node).lower().replace("'", "")
        is_hex = lower.startswith("0x")
        if "p" in lower or (not is_hex and any(mark in lower for mark in ".ef")):
            dtype, bare = "float32" if lower.endswith("f") else "float64", lower.rstrip("fl")
            return Scalar(np.dtype(dtype).type(float.fromhex(bare) if is_hex else bare), dtype)
        digits = lower.rstrip("ul")
        is_octal, suffix = digits.isdigit() and digits[0] == "0", lower[len(digits) :]
        value = int(digits, 8 if is_octal else 0)
        unsigned = "u" in suffix or (is_hex and value.bit_length() in (32, 64))
        wide = "l" in suffix or value.bit_length() > (32 if unsigned else 31)
        return Scalar(value, f"{'uint' if unsigned else 'int'}{64 if wide else 32}")

    def _string_literal(self, node: Node) -> Scalar:
        return Scalar(string(node), "text")

    _concatenated_string = _string_literal

    def _true(self, node: Node) -> Scalar:
        return Scalar(node.type == "true", "bool")

    _false = _true

    def _identifier(self, node: Node) -> Operand | None:
        found = self.names.get(text(node))
        if found is None:
            raise unsupported(f"name {text(node)}", node)
        return found.value if isinstance(found, Held) else read(found, self.lanes)

    def _parenthesized_expression(self, node: Node) -> Operand | None:
        return self.effect(only(node))

    _condition_clause = _parenthesized_expression

    def _field_expression(self, node: Node) -> Operand:
        whole = part(node, "argument")
        if whole.type == "identifier" and text(whole) not in self.names:
            return Scalar(self.lanes.place(text(node)), "uint32")
        if whole.type in PLACES:
            return read(self.place(node), self.lanes)
        made, at = self.value(whole), _FIELDS.find(text(part(node, "field")))
        if not isinstance(made, tuple) or not 0 <= at < len(made):
            raise unsupported("such member", node)
        return made[at]

    def _subscript_expression(self, node: Node) -> Operand:
        return read(self.place(node), self.lanes)

    # ---- operators ----

    def _unary_expression(self, node: Node) -> Scalar:
        sign, value = text(part(node, "operator")), _promoted(self.scalar(part(node, "argument")))
        if sign == "!":
            return Scalar(numbers.negated(value.value), "bool")
        made = _UNARY[sign](value.value)
        return Scalar(_wrapped(made, value.dtype), value.dtype)

    def _pointer_expression(self, node: Node) -> Operand:
        if text(part(node, "operator")) == "*":
            return read(self.place(node), self.lanes)
        return self.place(part(node, "argument"))

    def _binary_expression(self, node: Node) -> Operand:
        sign, left, right = (part(node, name) for name in ("operator", "left", "right"))
        lazily = {"&&": numbers.both, "||": numbers.either}.get(text(sign))
        if lazily is None:
            return self.combined(text(sign), self.value(left), self.value(right), node)
        mask = self.lanes.m
        return Scalar(lazily(mask, self.test(left), lambda lanes: self._under(lanes, right).value), "bool")

    def _conditional_expression(self, node: Node) -> Scalar:
        test = self.test(part(node, "condition"))
        yes = self._under(self._holding(test), part(node, "consequence"))
        no = self._under(self._holding(numbers.negated(test)), part(node, "alternative"))
        dtype = _common(yes, no)
        return Scalar(numbers.select(test, yes.to(dtype).value, no.to(dtype).value, dtype), dtype)

    def _holding(self, test: Any) -> Any:
        """The lanes in which a test holds, none of them, too."""
        found, mask = np.broadcast_to(test, self.lanes.count), self.lanes.m
        return mask if test is True else found if mask is None else mask & found

    def _under(self, mask: Any, node: Node) -> Scalar:
        """A value in some of the lanes; the others must not read memory."""
        outer, self.lanes = self.lanes, Lanes(self.lanes.g, mask)
        made = self.scalar(node)
        self.lanes = outer
        return made

    def _comma_expression(self, node: Node) -> Operand | None:
        self.effect(part(node, "left"))
        return self.effect(part(node, "right"))

    def _cast_expression(self, node: Node) -> Operand | None:
        return self.converted(described(part(node, "type")), part(node, "value"))

    def converted(self, kind: CType, node: Node) -> Operand | None:
        """A cast."""
        if kind.is_reference:
            return read(self.place(node).typed(kind), self.lanes)
        made = self.effect(node)
        if isinstance(made, Pointer):
            return made.typed(kind) if kind.is_pointer else made
        if kind.name == "void":
            return made
        if not isinstance(made, Scalar) or kind.is_pointer:
            raise unsupported(f"cast to {kind.name}", node)
        return made.to(element(kind)[0])

    def combined(self, sign: str, left: Operand, right: Operand, node: Node) -> Operand:
        """An operator on two values."""
        if isinstance(left, Pointer) and isinstance(right, Scalar) and sign in "+-":
            return left.moved(right.value if sign == "+" else -right.value)
        if not isinstance(left, Scalar) or not isinstance(right, Scalar):
            raise unsupported(f"operator {sign} of vectors or pointers", node)
        if sign in ("<<", ">>"):
            first, by = _promoted(left), _promoted(right).value
            made = first.value >> by if sign == ">>" else numbers.shift_left(first.value, by, first.dtype)
            return Scalar(made, first.dtype)
        dtype = _common(left, right)
        a, b = left.to(dtype).value, right.to(dtype).value
        if sign in _COMPARE:
            return Scalar(_COMPARE[sign](a, b), "bool")
        if sign in "/%":
            return Scalar(_quotient(sign, dtype)(a, b), dtype)
        return Scalar(_wrapped(_ARITHMETIC[sign](a, b), dtype), dtype)

    # ---- assignments ----

    def _assignment_expression(self, node: Node) -> Operand:
        sign, right = text(part(node, "operator"))[:-1], self.value(part(node, "right"))
        return self._assigned(node, part(node, "left"), sign, right)[1]

    def _update_expression(self, node: Node) -> Operand:
        sign, place = part(node, "operator"), part(node, "argument")
        return self._assigned(node, place, text(sign)[0], _ONE)[sign.start_byte < place.start_byte]

    def _assigned(self, node: Node, left: Node, sign: str, right: Operand) -> tuple[Operand, Operand]:
        """``left sign= right``: what was there, and what is there then."""
        held = self.names.get(text(left))
        if isinstance(held, Held):
            if self.is_masked:
                raise unsupported("assignment of a pointer in some of the lanes", node)
            before = self.value(left) if sign else right
            held.value = self.combined(sign, before, right, node) if sign else right
            return before, held.value
        place = self.place(left)
        before = read(place, self.lanes) if sign else right
        after = self.combined(sign, before, right, node) if sign else right
        if isinstance(after, Pointer):
            raise unsupported("number made of a pointer", node)
        write(place, after, self.lanes)
        return before, after.to(place.dtype) if isinstance(after, Scalar) else after

    # ---- places ----

    def place(self, node: Node) -> Pointer:
        """Where an expression is stored."""
        made: Pointer | Held | None = None
        if node.type == "identifier":
            made = self.names.get(text(node))
        elif node.type == "parenthesized_expression":
            made = self.place(only(node))
        elif node.type == "subscript_expression":
            index = self.scalar(only(part(node, "indices"))).value
            made = self.pointer(part(node, "argument")).moved(index)
        elif node.type == "pointer_expression" and text(part(node, "operator")) == "*":
            made = self.pointer(part(node, "argument"))
        elif node.type == "field_expression":
            made = self._component(node)
        if not isinstance(made, Pointer):
            raise unsupported("place for this", node)
        return made

    def _component(self, node: Node) -> Pointer:
        whole, at = part(node, "argument"), _FIELDS.find(text(part(node, "field")))
        inner = self.pointer(whole) if text(part(node, "operator")) == "->" else self.place(whole)
        if not 0 <= at < inner.lanes:
            raise unsupported("such member", node)
        return Pointer(inner.to, inner.dtype).moved(at)

    def pointer(self, node: Node) -> Pointer:
        """The value of an expression that is a pointer."""
        made = self.value(node)
        if not isinstance(made, Pointer):
            raise unsupported("pointer for this", node)
        return made

    # ---- calls ----

    def function_of_others(self, name: str, args: list[Node]) -> Running:
        """A call of a function of CUDA, or of the C library."""
        values = [self.value(arg) for arg in args]
        if name.startswith("make_") and name[5:] in VECTORS:
            return tuple(value.to(VECTORS[name[5:]][0]) for value in values if isinstance(value, Scalar))
        found = registry.find_function(name)
        if found is not None:
            return (yield from self._builtin(found, values))
        scalars = [value for value in values if isinstance(value, Scalar)]
        run, dtype = library(name, [value.dtype for value in scalars])
        return Scalar(run(*(value.value for value in scalars)), dtype)

    def _builtin(self, found: registry.Function, values: list[Operand]) -> Running:
        given: list[Any] = [self.passed(value) for value in values]
        dtype = found.dtype
        if found.typed_by is not None:
            kind = values[found.typed_by]
            assert not isinstance(kind, tuple)
            given.append(kind.dtype)
            dtype = dtype or kind.dtype
        made = found.run(self.lanes.g, self.lanes.m, *given)
        if found.waits:
            yield from made
            return None
        if found.mixes:
            self.lanes.g.taint.lanes = None
        return None if dtype == "void" else Scalar(made, dtype)

    def passed(self, value: Operand) -> Any:
        """A value as instructions take it."""
        if isinstance(value, tuple) or (isinstance(value, Pointer) and value.lanes > 1):
            raise UnsupportedError("the emulator passes no vectors to functions of CUDA and instructions")
        return value.to if isinstance(value, Pointer) else value.value


def _wrapped(value: Any, dtype: str) -> Any:
    return value if numbers.is_float(dtype) else numbers.wrap(value, dtype)


def _promoted(value: Scalar) -> Scalar:
    """Integers below int as int."""
    return value.to("int32") if value.dtype in _NARROW else value


def _common(left: Scalar, right: Scalar) -> str:
    first, second = _promoted(left).dtype, _promoted(right).dtype
    return first if _RANK.get(first, 0) >= _RANK.get(second, 0) else second


def _quotient(sign: str, dtype: str) -> Callable[[Any, Any], Any]:
    if dtype[0] == "f":
        return numbers.fdiv
    both = (numbers.udiv, numbers.umod) if dtype[0] == "u" else (numbers.div, numbers.mod)
    return both[sign == "%"]
