"""Expressions of device helpers as Python source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilec.emulate import instructions
from tilec.emulate.c_places import FIELDS, HelperPlaces, address_code, element, moved_place
from tilec.emulate.c_syntax import VECTORS, CType, Function, Node
from tilec.emulate.special import BUILTINS
from tilec.emulate.writer import Operand, Pointer, Value, Vector, is_integer

#: C's ranks of arithmetic types.
_RANK = {"int32": 0, "uint32": 1, "int64": 2, "uint64": 3, "float16": 4, "float32": 5, "float64": 6}


@dataclass(eq=False)
class HelperExpressions(HelperPlaces):
    """Writes expressions of one call of a helper."""

    def call(self, args: Sequence[Operand]) -> Operand | None:
        """The result of the function for these arguments."""
        raise NotImplementedError

    def effect(self, node: Node) -> None:
        """Writes an expression for what it does."""
        made = self._expr(node)
        if isinstance(made, Value) and "(" in made.code and not made.code.isidentifier():
            self.writer.line(made.code)

    def rvalue(self, node: Node) -> Operand:
        """The value of an expression."""
        made = self._expr(node)
        if made is None:
            raise self._unsupported(f"value of a {node.kind}")
        return made

    def _expr(self, node: Node) -> Operand | None:
        made: Operand | None = getattr(self, f"_{node.kind}")(*node.args)
        return made

    def _number(self, text: str) -> Value:
        lower = text.lower()
        if lower.startswith("0x") or not any(mark in lower for mark in ".ef"):
            digits = lower.rstrip("ul")
            value, suffix = int(digits, 0), lower[len(digits) :]
            unsigned = "u" in suffix or (lower.startswith("0x") and value > 0x7FFFFFFF)
            dtype = f"{'uint' if unsigned else 'int'}{64 if 'l' in suffix or value > 0xFFFFFFFF else 32}"
            return Value(str(value), dtype)
        dtype = "float32" if lower.endswith("f") else "float64"

        return Value(self.constants.of(np.dtype(dtype).type(lower.rstrip("fl"))), dtype)

    def _string(self, text: str) -> Value:
        return Value(repr(text), "text")

    def _name(self, text: str) -> Operand:
        found = self.variables.get(text)
        if found is None:
            if text in ("true", "false"):
                return Value(text.capitalize(), "bool")
            raise self._unsupported(f"name {text}")
        if found.value is not None:
            if isinstance(found.value, Pointer) and found.dtype != "pointer" and found.name == "":
                return self._read(found.value) if self._is_reference(text) else found.value
            return found.value
        if found.elements:
            return Pointer("variable", found.name, "0", found.dtype, found.dtype)
        if found.lanes > 1:
            return Vector(tuple(Value(f"{found.name}[{i}]", found.dtype) for i in range(found.lanes)))
        return Value(found.name, found.dtype)

    def _unary(self, sign: str, inner: Node) -> Operand:
        if sign == "*":
            return self._read(self._pointer(inner))
        if sign == "&":
            return self._address_of(inner)
        value = self._promoted(self._scalar(inner))
        if sign == "!":
            return Value(f"negated({value.code})", "int32")
        if sign == "~":
            return Value(f"wrap(~{value.code}, {value.dtype!r})", value.dtype)
        if sign == "+":
            return value
        negated = f"(-{value.code})"
        return Value(f"wrap({negated}, {value.dtype!r})" if is_integer(value.dtype) else negated, value.dtype)

    def _address_of(self, node: Node) -> Pointer:
        place = self._lvalue(node)
        if isinstance(place, Pointer):
            return place
        return Pointer("variable", place.name, "", place.dtype, place.dtype, place.lanes)

    def _binary(self, sign: str, left: Node, right: Node) -> Operand:
        first, second = self.rvalue(left), self.rvalue(right)
        if isinstance(first, Pointer) and isinstance(second, Value) and sign in "+-":
            return moved_place(first, second.code if sign == "+" else f"-{second.code}")
        if not isinstance(first, Value) or not isinstance(second, Value):
            raise self._unsupported(f"operator {sign} of vectors or pointers")
        if sign in ("&&", "||"):
            return Value(f"{'land' if sign == '&&' else 'lor'}({first.code}, {second.code})", "int32")
        if sign in ("<<", ">>"):
            return self._shifted(sign, self._promoted(first), self._promoted(second))
        dtype = _common(self._promoted(first).dtype, self._promoted(second).dtype)
        a, b = self._converted(first, dtype).code, self._converted(second, dtype).code
        if sign in ("==", "!=", "<", "<=", ">", ">="):
            return Value(f"({a} {sign} {b})", "bool")
        if sign in ("/", "%") and is_integer(dtype):
            name = ("u" if dtype[0] == "u" else "") + ("div" if sign == "/" else "mod")
            return Value(f"{name}({a}, {b})", dtype)
        if sign == "/":
            return Value(f"fdiv({a}, {b})", dtype)
        text = f"({a} {sign} {b})"
        return Value(f"wrap({text}, {dtype!r})" if is_integer(dtype) else text, dtype)

    def _shifted(self, sign: str, left: Value, right: Value) -> Value:
        if sign == ">>":
            return Value(f"({left.code} >> {right.code})", left.dtype)
        return Value(f"shift_left({left.code}, {right.code}, {left.dtype!r})", left.dtype)

    def _promoted(self, value: Value) -> Value:
        """Integers below int as int."""
        if value.dtype in ("int8", "uint8", "int16", "uint16", "bool"):
            return self._converted(value, "int32")
        return value

    def _ternary(self, cond: Node, yes: Node, no: Node) -> Value:
        test, left, right = (self._scalar(node) for node in (cond, yes, no))
        dtype = _common(self._promoted(left).dtype, self._promoted(right).dtype)
        codes = [self._converted(each, dtype).code for each in (left, right)]
        return Value(f"select(logical({test.code}), {codes[0]}, {codes[1]}, {dtype!r})", dtype)

    def _comma(self, first: Node, second: Node) -> Operand | None:
        self.effect(first)
        return self._expr(second)

    def _cast(self, kind: CType, inner: Node) -> Operand | None:
        made = self._expr(inner)
        dtype, lanes = element(kind)
        if isinstance(made, Pointer):
            if kind.pointer == 0:
                return made
            return made if kind.name == "void" else made.typed(dtype, lanes)
        if kind.name == "void" and kind.pointer == 0:
            return made
        if isinstance(made, Value):
            return self._converted(made, dtype)
        raise self._unsupported(f"cast to {kind.name}")

    def _member(self, inner: Node, name: str) -> Value:
        if inner.kind == "name" and str(inner.args[0]) not in self.variables:
            code = BUILTINS.get(f"{inner.args[0]}.{name}")
            if code is not None:
                return Value(code, "uint32")
        made = self.rvalue(inner)
        if isinstance(made, Vector) and name in FIELDS:
            return made.parts[FIELDS[name]]
        raise self._unsupported(f"member {name}")

    def _index(self, base: Node, index: Node) -> Operand:
        return self._read(moved_place(self._pointer(base), self._scalar(index).code))

    def _lambda(self, function: Function) -> Operand:
        raise self._unsupported("lambda that is not called")

    # ---- calls ----

    def _call(self, callee: Node, args: tuple[Node, ...]) -> Operand | None:
        if callee.kind == "lambda":
            return self._inline(callee.args[0], args)  # type: ignore[arg-type]
        name = str(callee.args[0])
        if name in self.others and name != self.function.name:
            return self._inline(self.others[name], args)
        if name.startswith("make_") and name[5:] in VECTORS:
            dtype, _ = VECTORS[name[5:]]
            return Vector(tuple(self._converted(self._scalar(arg), dtype) for arg in args))
        values = [self.rvalue(arg) for arg in args]
        found = instructions.function(name)
        if found is None:
            return self.math(name, [value for value in values if isinstance(value, Value)])
        return self._builtin(found, values)

    def _builtin(self, found: instructions.Function, values: list[Operand]) -> Operand | None:
        codes, kinds = [], []
        for value in values:
            if isinstance(value, Vector) or (isinstance(value, Pointer) and value.lanes > 1):
                raise self._unsupported("vector argument of a function")
            codes.append(address_code(value) if isinstance(value, Pointer) else value.code)
            kinds.append(value.dtype)
        dtype = found.dtype
        if found.typed_by is not None:
            codes.append(repr(kinds[found.typed_by]))
            dtype = dtype or kinds[found.typed_by]
        code = f"{self.constants.of(found.run)}({', '.join(['g', self.writer.mask, *codes])})"
        if found.waits:
            self.writer.waits = True
            self.writer.line(f"yield from {code}")
            return None
        if found.dtype == "void":
            self.writer.line(code)
            return None
        held = self.writer.hold(code)
        if found.mixes:
            self.writer.line("T.lanes = None")
        return Value(held, dtype)

    def _inline(self, function: Function, args: tuple[Node, ...]) -> Operand | None:
        inner = type(self)(function, self.others, self.writer, self.constants, self.math)
        return inner.call([self.rvalue(arg) for arg in args])


def _common(left: str, right: str) -> str:
    return left if _RANK.get(left, 0) >= _RANK.get(right, 0) else right
