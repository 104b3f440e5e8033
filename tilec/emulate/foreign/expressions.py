"""Expressions of C over the lanes of a group."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulate import numbers
from tilec.emulate.foreign.memory import Operand, Part, Pointer, Scalar, Vector, element, read, write
from tilec.emulate.foreign.syntax import VECTORS, CType, Function, Node
from tilec.emulate.instructions import registry
from tilec.emulate.lanes import Lanes
from tilec.emulate.library import library
from tilec.errors import UnsupportedError

#: C's ranks of arithmetic types.
_RANK = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}
_NARROW = ("int8", "uint8", "int16", "uint16", "bool")
_COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
            ">=": operator.ge}  # fmt: skip
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_,
               "|": operator.or_, "^": operator.xor}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {"~": operator.invert, "-": operator.neg, "+": operator.pos}
_FIELDS = {"x": 0, "y": 1, "z": 2, "w": 3}
#: A call, which may have to wait for other warps.
Running = Generator[str, None, "Operand | None"]


@dataclass(eq=False)
class Expressions:
    """The expressions of one call of ``function``, run by ``entered``; ``lanes`` are those that run now.
    ``places`` are its variables; ``pointers`` those that are pointers themselves, arrays among them."""

    function: Function
    others: dict[str, Function]
    entered: Lanes
    places: dict[str, Pointer] = field(default_factory=dict)
    pointers: dict[str, Operand] = field(default_factory=dict)
    lanes: Lanes = field(init=False)

    def __post_init__(self) -> None:
        self.lanes = self.entered

    def inner(self, function: Function, args: list[Operand]) -> Running:
        """A call of another function."""
        raise NotImplementedError

    @property
    def is_masked(self) -> bool:
        """Whether some of the lanes that came in do not run here."""
        return self.lanes.m is not self.entered.m

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for something that is not read."""
        return UnsupportedError(
            f"the emulator has no {what}",
            why=f"in the function {self.function.name}",
            remedy="write it without, or add it to tilec/emulate/foreign",
        )

    # ---- values ----

    def value(self, node: Node) -> Operand:
        """The value of an expression."""
        made = self.effect(node)
        if made is None:
            raise self.unsupported(f"value of a {node.kind}")
        return made

    def scalar(self, node: Node) -> Scalar:
        """The value of an expression that is a number."""
        made = self.value(node)
        if not isinstance(made, Scalar):
            raise self.unsupported(f"scalar value of a {node.kind}")
        return made

    def effect(self, node: Node) -> Operand | None:
        """An expression that may have no value."""
        if node.kind != "call":
            made: Operand | None = getattr(self, f"_{node.kind}")(*node.args)
            return made
        running = self.call(*node.args)  # type: ignore[arg-type]
        try:
            next(running)
        except StopIteration as ended:
            value: Operand | None = ended.value
            return value
        raise self.unsupported("value of a function that waits")

    def _number(self, text: str) -> Scalar:
        lower = text.lower()
        if lower.startswith("0x") or not any(mark in lower for mark in ".ef"):
            digits = lower.rstrip("ul")
            value, suffix = int(digits, 0), lower[len(digits) :]
            unsigned = "u" in suffix or (lower.startswith("0x") and value > 0x7FFFFFFF)
            wide = 64 if "l" in suffix or value > 0xFFFFFFFF else 32
            return Scalar(value, f"{'uint' if unsigned else 'int'}{wide}")
        dtype = "float32" if lower.endswith("f") else "float64"
        return Scalar(np.dtype(dtype).type(lower.rstrip("fl")), dtype)

    def _string(self, text: str) -> Scalar:
        return Scalar(text, "text")

    def _name(self, text: str) -> Operand:
        if text in self.places:
            return read(self.places[text], self.lanes)
        if text in self.pointers:
            return self.pointers[text]
        if text in ("true", "false"):
            return Scalar(text == "true", "bool")
        raise self.unsupported(f"name {text}")

    # ---- operators ----

    def _unary(self, sign: str, inner: Node) -> Operand:
        if sign in "*&":
            place = self.place(Node("unary", ("*", inner)) if sign == "*" else inner)
            return read(place, self.lanes) if sign == "*" else place
        value = _promoted(self.scalar(inner))
        if sign == "!":
            return Scalar(numbers.negated(value.value), "int32")
        made = _UNARY[sign](value.value)
        return Scalar(numbers.wrap(made, value.dtype) if value.is_integer else made, value.dtype)

    def _binary(self, sign: str, left: Node, right: Node) -> Operand:
        first, second = self.value(left), self.value(right)
        if isinstance(first, Pointer) and isinstance(second, Scalar) and sign in "+-":
            return first.moved(second.value if sign == "+" else -second.value)
        if not isinstance(first, Scalar) or not isinstance(second, Scalar):
            raise self.unsupported(f"operator {sign} of vectors or pointers")
        return _combined(sign, first, second)

    def _ternary(self, cond: Node, yes: Node, no: Node) -> Scalar:
        test, left, right = (self.scalar(node) for node in (cond, yes, no))
        dtype = _common(left, right)
        made = (numbers.logical(test.value), left.to(dtype).value, right.to(dtype).value)
        return Scalar(numbers.select(*made, dtype), dtype)

    def _comma(self, first: Node, second: Node) -> Operand | None:
        self.effect(first)
        return self.effect(second)

    def _cast(self, kind: CType, inner: Node) -> Operand | None:
        made = self.effect(inner)
        if isinstance(made, Pointer):
            return made.typed(kind) if kind.pointer else made
        if kind.name == "void":
            return made
        if not isinstance(made, Scalar):
            raise self.unsupported(f"cast to {kind.name}")
        return made.to(element(kind)[0])

    def _assign(self, left: Node, right: Node) -> Operand:
        value = self.value(right)
        if isinstance(value, Pointer):
            if self.is_masked or left.kind != "name":
                raise self.unsupported("assignment of a pointer here")
            self.pointers[str(left.args[0])] = value
            return value
        place = self.place(left)
        self.put(place, value)
        return value.to(place.dtype) if isinstance(value, Scalar) else value

    def put(self, place: Pointer, value: Scalar | Vector) -> None:
        """An assignment."""
        write(place, value, self.lanes, self.is_masked)

    def _member(self, inner: Node, name: str) -> Scalar:
        if inner.kind == "name" and str(inner.args[0]) not in self.places:
            return Scalar(self.lanes.place(f"{inner.args[0]}.{name}"), "uint32")
        made = self.value(inner)
        if not isinstance(made, tuple) or name not in _FIELDS:
            raise self.unsupported(f"member {name}")
        return made[_FIELDS[name]]

    def _index(self, base: Node, index: Node) -> Operand:
        return read(self.place(Node("index", (base, index))), self.lanes)

    def _lambda(self, function: Function) -> Operand:
        raise self.unsupported("lambda that is not called")

    # ---- places ----

    def place(self, node: Node) -> Pointer:
        """Where an expression is stored."""
        made = None
        if node.kind == "name":
            made = self.places.get(str(node.args[0]))
        elif node.kind == "index":
            base, index = node.args
            made = self._pointer(base).moved(self.scalar(index).value)  # type: ignore[arg-type]
        elif node.kind == "unary" and node.args[0] == "*":
            made = self._pointer(node.args[1])  # type: ignore[arg-type]
        elif node.kind == "member":
            inner = self.place(node.args[0])  # type: ignore[arg-type]
            made = Pointer(inner.to, inner.dtype).moved(_FIELDS[str(node.args[1])])
        if not isinstance(made, Pointer):
            raise self.unsupported(f"assignment to a {node.kind}")
        return made

    def _pointer(self, node: Node) -> Pointer:
        made = self.value(node)
        if not isinstance(made, Pointer):
            raise self.unsupported("pointer made of a number")
        return made

    # ---- calls ----

    def call(self, callee: Node, args: tuple[Node, ...]) -> Running:
        """A call of a function: of the source, of CUDA, or of the C library."""
        name = str(callee.args[0])
        other = callee.args[0] if callee.kind == "lambda" else self.others.get(name)
        values = [self.value(arg) for arg in args]
        if isinstance(other, Function):
            return (yield from self.inner(other, values))
        if name.startswith("make_") and name[5:] in VECTORS:
            dtype = VECTORS[name[5:]][0]
            return tuple(value.to(dtype) for value in values if isinstance(value, Scalar))
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
            raise self.unsupported("vector argument of a function")
        return value.to if isinstance(value, Pointer) else value.value


def _promoted(value: Scalar) -> Scalar:
    """Integers below int as int."""
    return value.to("int32") if value.dtype in _NARROW else value


def _common(left: Scalar, right: Scalar) -> str:
    first, second = _promoted(left).dtype, _promoted(right).dtype
    return first if _RANK.get(first, 0) >= _RANK.get(second, 0) else second


def _combined(sign: str, left: Scalar, right: Scalar) -> Scalar:
    """An operator on two numbers."""
    if sign in ("&&", "||"):
        return Scalar((numbers.land if sign == "&&" else numbers.lor)(left.value, right.value), "int32")
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
    made = _ARITHMETIC[sign](a, b)
    return Scalar(numbers.wrap(made, dtype) if dtype[0] in "iu" else made, dtype)


def _quotient(sign: str, dtype: str) -> Callable[[Any, Any], Any]:
    if dtype[0] == "f":
        return numbers.fdiv
    both = (numbers.udiv, numbers.umod) if dtype[0] == "u" else (numbers.div, numbers.mod)
    return both[sign == "%"]


def variable(dtype: str, parts: list[Any], lanes: int = 1) -> Pointer:
    """A new variable."""
    return Pointer(Part(parts, dtype), dtype, lanes)
