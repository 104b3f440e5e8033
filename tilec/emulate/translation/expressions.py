"""Scalar expressions of device TIR as Python source over the lanes of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx
from tvm.ir import Call, PointerType, StringImm, TensorLoad, Var

from tilec.emulate.library import library
from tilec.emulate.state.numbers import TYPES
from tilec.emulate.translation.writer import Constants, Operand, Pointer, Value, Writer, is_integer, size_of
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of, operands

if TYPE_CHECKING:
    from tvm.ir import Expr

_ARITHMETIC = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*"}
_BITWISE = {tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^"}
_COMPARE = {tirx.EQ: "==", tirx.NE: "!=", tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">="}
_DIVIDE = {tirx.Div: "div", tirx.Mod: "mod", tirx.FloorDiv: "udiv", tirx.FloorMod: "umod"}
#: The types of places.
_PLACES = ("int32", "int64")
#: Math intrinsics that reach the code generator under their own names.
_INTRINSICS = {
    f"tirx.{name}": f"{name}f" for name in (
        "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh",
        "erf", "floor", "ceil", "trunc", "fabs", "nearbyint", "round", "sinh", "cosh", "asin", "acos", "atan",
    )
}  # fmt: skip


def _as_integer(made: Value, dtype: str) -> Value:
    """The integer that a function gives, in the type that its call has: `__popc` of a uint32 is an int32."""
    if made.dtype == dtype or not (is_integer(made.dtype) and is_integer(dtype)):
        return made
    return Value(f"cast({made.code}, {made.dtype!r}, {dtype!r})", dtype)


@dataclass
class Buffer:
    """What stands behind a buffer: its space and where it starts, as in `Pointer`."""

    space: str
    base: str
    start: str
    dtype: str


def _missing(what: str, why: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"the emulator has no {what}",
        why=why,
        remedy="write the kernel without it, or add it to tilec/emulate",
    )


@dataclass(eq=False)
class Expressions:
    """Writes expressions. ``constant`` maps variables that never change during a block to their source,
    ``bound`` the others to theirs; ``invariants`` are the sources of expressions over the former alone.
    ``places`` are counters of loops and what is computed from these alone, which leave no type."""

    constants: Constants
    helper: Callable[[Call, Writer], Operand | None]
    writer: Writer = field(default_factory=Writer)
    constant: dict[Any, str] = field(default_factory=dict)
    bound: dict[Any, Value] = field(default_factory=dict)
    buffers: dict[Any, Buffer] = field(default_factory=dict)
    maps: dict[Any, str] = field(default_factory=dict)
    invariants: list[str] = field(default_factory=list)
    places: set[Any] = field(default_factory=set)
    _slots: dict[str, int] = field(default_factory=dict)
    _evaluating: bool = False

    # ---- values ----

    def value(self, expr: Expr) -> Value:
        """The value of an expression."""
        made = self.operand(expr)
        if isinstance(made, Value):
            return made
        raise _missing(f"value of {expr}")

    def operand(self, expr: Expr) -> Operand:
        """The value of an expression, or the pointer that it is."""
        kind = type(expr)
        if kind in (tirx.IntImm, tirx.FloatImm):
            return self._literal(expr)
        if kind is Var:
            return self._variable(expr)
        if not self._evaluating and self.is_invariant(expr):
            return Value(self._invariant(expr), dtype_of(expr))
        return self._node(expr, kind)

    def _literal(self, expr: Expr) -> Value:
        dtype = dtype_of(expr)
        if dtype == "bool":
            return Value(str(bool(expr.value)), dtype)
        if is_integer(dtype):
            return Value(str(int(expr.value)), dtype)
        return Value(self.constants.of(TYPES[dtype].type(expr.value)), dtype)

    def _variable(self, expr: Var) -> Operand:
        if expr in self.constant:
            return Value(self.constant[expr], dtype_of(expr))
        if expr in self.bound:
            return self.bound[expr]
        if expr in self.buffers:
            buffer = self.buffers[expr]
            return Pointer(buffer.space, buffer.base, buffer.start, buffer.dtype)
        if expr in self.maps:
            return Pointer("map", self.maps[expr], "0", "void")
        raise _missing(f"variable {expr.name}")

    # ---- what never changes ----

    def is_invariant(self, expr: Expr) -> bool:
        """Whether an expression depends on what stays the same for a block and its threads."""
        kind = type(expr)
        if kind in (tirx.IntImm, tirx.FloatImm):
            return True
        if kind is Var:
            return expr in self.constant
        if kind in (TensorLoad, Call, tirx.Let) or kind not in _PURE:
            return False
        return all(self.is_invariant(part) for part in operands(expr))

    def _invariant(self, expr: Expr) -> str:
        outer, self._evaluating = self._evaluating, True
        code = self._node(expr, type(expr)).code  # type: ignore[union-attr]
        self._evaluating = outer
        return self.invariant(code)

    def invariant(self, code: str) -> str:
        """The slot of source over invariants alone."""
        if code not in self._slots:
            self._slots[code] = len(self.invariants)
            self.invariants.append(code)
        return f"c[{self._slots[code]}]"

    # ---- nodes ----

    def _node(self, expr: Expr, kind: type) -> Operand:
        if kind in _ARITHMETIC:
            return self._arithmetic(expr, _ARITHMETIC[kind])
        if kind in _BITWISE:
            return Value(f"({self._code(expr.a)} {_BITWISE[kind]} {self._code(expr.b)})", dtype_of(expr))
        if kind in _COMPARE:
            return Value(f"({self._code(expr.a)} {_COMPARE[kind]} {self._code(expr.b)})", "bool")
        if kind in _DIVIDE:
            return self._divided(expr, kind)
        handler = _NODES.get(kind)
        if handler is None:
            raise _missing(kind.__name__, f"in {str(expr)[:200]}")
        return handler(self, expr)

    def _code(self, expr: Expr) -> str:
        return self.value(expr).code

    def _arithmetic(self, expr: Expr, sign: str) -> Value:
        dtype = dtype_of(expr)
        text = f"({self._code(expr.a)} {sign} {self._code(expr.b)})"
        if dtype in ("uint32", "uint64"):
            text = f"u{dtype[4:]}{text}"
        elif is_integer(dtype) and (self._evaluating or dtype not in _PLACES or self.has_data(expr)):
            text = f"wrap({text}, {dtype!r})"
        return Value(text, dtype)

    def has_data(self, expr: Expr) -> bool:
        """Whether a value may be any of its type: an element, or what a helper gives, takes part."""
        if isinstance(expr, Var):
            return expr in self.bound and expr not in self.places
        return isinstance(expr, (TensorLoad, Call)) or any(map(self.has_data, operands(expr)))

    def _divided(self, expr: Expr, kind: type) -> Value:
        dtype = dtype_of(expr)
        left, right = self._code(expr.a), self._code(expr.b)
        if not is_integer(dtype):
            return Value(f"fdiv({left}, {right})", dtype)
        name = _DIVIDE[kind]
        if dtype[0] == "u" and not name.startswith("u"):
            name = f"u{name}"
        return Value(f"{name}({left}, {right})", dtype)

    def _extreme(self, expr: Expr) -> Value:
        name = "least" if isinstance(expr, tirx.Min) else "most"
        dtype = dtype_of(expr)
        return Value(f"{name}({self._code(expr.a)}, {self._code(expr.b)}, {dtype!r})", dtype)

    def _shift(self, expr: Expr) -> Value:
        dtype = dtype_of(expr)
        left, right = self._code(expr.a), self._code(expr.b)
        if isinstance(expr, tirx.RShift):
            return Value(f"({left} >> {right})", dtype)
        return Value(f"shift_left({left}, {right}, {dtype!r})", dtype)

    def _cast(self, expr: Expr) -> Operand:
        inner = self.operand(expr.value)
        if not isinstance(inner, Value):
            return inner
        source, dtype = inner.dtype, dtype_of(expr)
        if source == dtype:
            return inner
        return Value(f"cast({inner.code}, {source!r}, {dtype!r})", dtype)

    def _logic(self, expr: Expr) -> Value:
        is_and = isinstance(expr, tirx.And)
        first = self._code(expr.a)
        if not reads(expr.b):
            return Value(f"{'land' if is_and else 'lor'}({first}, {self._code(expr.b)})", "bool")
        held = self.writer.hold(first)
        second = self._function(lambda: self._code(expr.b))
        return Value(f"{'both' if is_and else 'either'}({self.writer.mask}, {held}, {second})", "bool")

    def _choice(self, cond: Expr, yes: Expr, no: Expr) -> Value:
        dtype = dtype_of(yes)
        test = self._code(cond)
        if not reads(yes) and not reads(no):
            return Value(f"select({test}, {self._code(yes)}, {self._code(no)}, {dtype!r})", dtype)
        held = self.writer.hold(test)
        left, right = (self._function(partial(self._code, part)) for part in (yes, no))
        return Value(f"lazily({self.writer.mask}, {held}, {left}, {right}, {dtype!r})", dtype)

    def _function(self, body: Callable[[], str]) -> str:
        """A function of a mask that computes ``body`` under it."""
        name, mask = self.writer.name("f"), self.writer.name("m")
        with self.writer.inner(f"def {name}({mask}):", mask):
            self.writer.line(f"return {body()}")
        return name

    def _select(self, expr: Expr) -> Value:
        return self._choice(expr.condition, expr.true_value, expr.false_value)

    def _not(self, expr: Expr) -> Value:
        return Value(f"negated({self._code(expr.a)})", "bool")

    def _inverted(self, expr: Expr) -> Value:
        dtype = dtype_of(expr)
        return Value(f"wrap(~{self._code(expr.a)}, {dtype!r})", dtype)

    def _let(self, expr: Expr) -> Value:
        value = self.value(expr.value)
        self.bound[expr.var] = Value(self.writer.hold(value.code), value.dtype)
        return self.value(expr.body)

    # ---- memory ----

    def _load(self, expr: Expr) -> Value:
        (index,) = expr.indices
        buffer = self.buffer(expr.source)
        code = self._code(index)
        mask, place = self.writer.mask, self.place(buffer, code)
        if buffer.space == "local":
            return Value(f"{buffer.base}.read({place}, {mask})", buffer.dtype)
        return Value(f"g.load({mask}, {buffer.base}, {place}, {buffer.dtype!r})", buffer.dtype)

    def buffer(self, var: Any) -> Buffer:
        """What stands behind a buffer."""
        found = self.buffers.get(var)
        if found is None:
            raise _missing(f"buffer {var.name}")
        return found

    @staticmethod
    def place(buffer: Buffer, index: str) -> str:
        """The source of where an element lies: its number in registers, its byte in memory."""
        size = 1 if buffer.space == "local" else size_of(buffer.dtype)
        scaled = index if size == 1 else f"wide({index}) * {size}"
        return scaled if buffer.start == "0" else f"{buffer.start} + {scaled}"

    def pointer(self, load: Expr) -> Pointer:
        """The address of an element."""
        if not isinstance(load, TensorLoad):
            inner = self.operand(load)
            if isinstance(inner, Pointer):
                return inner
            raise _missing(f"address of {load}")
        (index,) = load.indices
        buffer = self.buffer(load.source)
        offset = self.place(buffer, self._code(index))
        return Pointer(buffer.space, buffer.base, offset, buffer.dtype)

    # ---- calls ----

    def _call(self, expr: Expr) -> Operand:
        name = str(getattr(expr.op, "name", expr.op))
        if name == "tirx.address_of":
            return self.pointer(expr.args[0])
        if name in ("prim.if_then_else", "tirx.if_then_else"):
            return self._choice(*expr.args)
        if name in ("tirx.reinterpret", "prim.reinterpret"):
            return self._reinterpreted(expr)
        if name in ("tirx.call_pure_extern", "tirx.call_extern"):
            made = self.function(str(expr.args[0].value), [self.value(part) for part in expr.args[1:]])
            return _as_integer(made, dtype_of(expr))
        if name == "tirx.isnan":
            value = self.writer.hold(self._code(expr.args[0]))
            return Value(f"({value} != {value})", "bool")
        if name in _INTRINSICS:
            return self.function(_INTRINSICS[name], [self.value(part) for part in expr.args])
        found = self.helper(expr, self.writer)
        if found is None:
            raise _missing(f"value of {name}", f"in {str(expr)[:200]}")
        return found

    def _reinterpreted(self, expr: Expr) -> Operand:
        inner = self.operand(expr.args[-1])
        if isinstance(inner, Value) and isinstance(expr.ty, PointerType):
            element = str(expr.ty.element_type.dtype)
            return Pointer("global", "HOST", inner.code, element)
        if isinstance(inner, Value):
            dtype = dtype_of(expr)
            return Value(f"reinterpreted({inner.code}, {inner.dtype!r}, {dtype!r})", dtype)
        return inner

    def function(self, name: str, args: list[Value]) -> Value:
        """A function of the C library."""
        run, dtype = library(name, [arg.dtype for arg in args])
        return Value(f"{self.constants.of(run)}({', '.join(arg.code for arg in args)})", dtype)

    def _string(self, expr: Expr) -> Value:
        return Value(repr(str(expr.value)), "string")


_NODES: dict[type, Callable[[Expressions, Any], Operand]] = {
    tirx.Min: Expressions._extreme,
    tirx.Max: Expressions._extreme,
    tirx.LShift: Expressions._shift,
    tirx.RShift: Expressions._shift,
    tirx.Cast: Expressions._cast,
    tirx.And: Expressions._logic,
    tirx.Or: Expressions._logic,
    tirx.Select: Expressions._select,
    tirx.Not: Expressions._not,
    tirx.BitwiseNot: Expressions._inverted,
    tirx.Let: Expressions._let,
    TensorLoad: Expressions._load,
    Call: Expressions._call,
    StringImm: Expressions._string,
}
_PURE = {*_ARITHMETIC, *_BITWISE, *_COMPARE, *_DIVIDE, *_NODES}


def reads(expr: Expr) -> bool:
    """Whether an expression reads memory or calls a helper: then it must not run for other lanes."""
    if isinstance(expr, (TensorLoad, Call, tirx.Let)):
        return True
    return any(reads(part) for part in operands(expr))


def wide(value: Any) -> Any:
    """A value in 64 bits."""
    return value.astype(np.int64, copy=False) if isinstance(value, np.ndarray) else value
