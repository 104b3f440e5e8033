"""Scalar expressions and pointers of device TIR in Metal's language."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.backends.cuda.device.helper import called
from tilec.backends.metal.codegen.header import FUNCTIONS
from tilec.backends.metal.codegen.helpers import Helpers
from tilec.backends.metal.codegen.words import Pointer, refused, type_of
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.device.helper import Called

_BINARY = {
    tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.Div: "/", tirx.Mod: "%", tirx.EQ: "==", tirx.NE: "!=",
    tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.And: "&&", tirx.Or: "||",
    tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^", tirx.LShift: "<<", tirx.RShift: ">>",
}  # fmt: skip
#: Operators make 32 bits of these, and literals have them: what is computed is cut to its type again, which
#: overloaded functions and `as_type` go by.
_NARROW = ("int8", "uint8", "int16", "uint16")
_SUFFIXES = {"uint32": "u", "int64": "l", "uint64": "ul"}
_SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")
#: Statements that leave loops.
LEAVES = {"tirx.break_loop": "break;", "tirx.continue_loop": "continue;"}
_NOTHING = ("tirx.ptx.cp_async_commit_group", "tirx.ptx.cp_async_wait_group", "tirx.ptx.cp_async_wait_all")


class Expressions:
    """The texts of one function's expressions. ``names`` are those of variables, ``buffers`` what stands
    behind buffers; ``declared`` declares a variable in front of the statement at hand and gives its name."""

    def __init__(self, helpers: Helpers, declared: Callable[[Var], str]) -> None:
        self.helpers, self.declared = helpers, declared
        self.names: dict[Var, str] = {}
        self.buffers: dict[Var, Pointer] = {}

    def value(self, expr: Expr) -> str:
        """The text of a value."""
        kind = type(expr)
        if kind in _BINARY:
            return self._binary(expr, _BINARY[kind])
        handler = _NODES.get(kind)
        if handler is None:
            raise refused(kind.__name__)
        return handler(self, expr)

    # ---- values ----

    def _integer(self, expr: tirx.IntImm) -> str:
        dtype, number = dtype_of(expr), int(expr.value)
        if dtype == "bool":
            return str(bool(number)).lower()
        if number == -(2**31):
            return "int(0x80000000)"
        if dtype in _NARROW:
            return f"{type_of(dtype)}({number})"
        text = f"{number}{_SUFFIXES.get(dtype, '')}"
        return f"({text})" if number < 0 else text

    def _float(self, expr: tirx.FloatImm) -> str:
        dtype, number = dtype_of(expr), float(expr.value)
        if math.isnan(number):
            text = "NAN"
        elif math.isinf(number):
            text = "INFINITY" if number > 0 else "(-INFINITY)"
        else:
            text = f"{number!r}f" if number >= 0 else f"({number!r}f)"
        return text if dtype == "float32" else cast(text, "float32", dtype)

    def _variable(self, expr: Var) -> str:
        return self.names[expr] if expr in self.names else self.buffers[expr].text

    def _binary(self, expr: Expr, sign: str) -> str:
        dtype = dtype_of(expr)
        if type(expr) is tirx.Mod and dtype.startswith("float"):
            return f"fmod({self.value(expr.a)}, {self.value(expr.b)})"
        text = f"({self.value(expr.a)} {sign} {self.value(expr.b)})"
        return f"{type_of(dtype)}{text}" if dtype in _NARROW else text

    def _extreme(self, expr: Expr) -> str:
        name = "min" if isinstance(expr, tirx.Min) else "max"
        prefix = "f" if dtype_of(expr).startswith("float") else ""
        return f"{prefix}{name}({self.value(expr.a)}, {self.value(expr.b)})"

    def _cast(self, expr: Expr) -> str:
        return cast(self.value(expr.value), dtype_of(expr.value), dtype_of(expr))

    def _select(self, expr: Expr) -> str:
        return self._choice(expr.condition, expr.true_value, expr.false_value)

    def _choice(self, test: Expr, yes: Expr, no: Expr) -> str:
        return f"({self.value(test)} ? {self.value(yes)} : {self.value(no)})"

    def _not(self, expr: Expr) -> str:
        return f"(!{self.value(expr.a)})"

    def _inverted(self, expr: Expr) -> str:
        return f"{type_of(dtype_of(expr))}(~{self.value(expr.a)})"

    def _let(self, expr: tirx.Let) -> str:
        """Assigns the value where it is computed: an operand of a choice may exist for one side alone."""
        value, name = self.value(expr.value), self.declared(expr.var)
        self.names[expr.var] = name
        return f"({name} = {value}, {self.value(expr.body)})"

    def _load(self, expr: TensorLoad) -> str:
        return self.element(expr.source, expr.indices)

    def element(self, buffer: Var, indices: list[Expr]) -> str:
        """An element, to be read or written."""
        (index,) = indices
        return f"{self.buffers[buffer].text}[{self.value(index)}]"

    # ---- pointers ----

    def pointer(self, expr: Expr) -> Pointer:
        """What an expression points to."""
        if isinstance(expr, Call) and operator(expr) == "tirx.address_of":
            return self.pointer(expr.args[0])
        if isinstance(expr, TensorLoad):
            behind = self.buffers[expr.source]
            return Pointer(f"&{self.element(expr.source, expr.indices)}", behind.space, behind.dtype)
        if isinstance(expr, Var) and expr in self.buffers:
            return self.buffers[expr]
        if isinstance(expr, tirx.Cast) or (
            isinstance(expr, Call) and operator(expr).endswith(".reinterpret")
        ):
            return self.pointer(expr.value if isinstance(expr, tirx.Cast) else expr.args[-1])
        raise refused(f"the pointer {expr}")

    # ---- calls ----

    def _call(self, call: Call) -> str:
        name = operator(call)
        if name in ("prim.if_then_else", "tirx.if_then_else"):
            return self._choice(*call.args)
        if name.endswith(".reinterpret"):
            return f"as_type<{type_of(dtype_of(call))}>({self.value(call.args[-1])})"
        if name in ("tirx.call_pure_extern", "tirx.call_extern"):
            return self._function(str(call.args[0].value), list(call.args[1:]))
        if name == "tirx.isnan":
            return f"isnan({self.value(call.args[0])})"
        function = called(call)
        if function is not None:
            return self._helper(function)
        if name == "tirx.cuda.cta_sync":
            return "tilec_sync()"
        if name in _NOTHING:
            return ""
        return self._function(f"{name.rpartition('.')[2]}f", list(call.args))

    def _function(self, name: str, args: list[Expr]) -> str:
        """A function of the C library, of float32."""
        if name not in FUNCTIONS:
            raise refused(name)
        return f"{name}({', '.join(map(self.value, args))})"

    def _helper(self, function: Called) -> str:
        pointers = self.helpers.pointers(function)
        given: list[str] = []
        spaces: list[str] = []
        for arg, is_pointer in zip(function.operands, pointers, strict=True):
            if not is_pointer:
                given.append(self.value(arg))
                continue
            place = self.pointer(arg)
            given.append(place.text)
            spaces.append(place.space)
        return self.helpers.call(function.name, function.text, given, spaces)


def operator(call: Call) -> str:
    """The name of what is called."""
    return str(getattr(call.op, "name", call.op))


def cast(text: str, source: str, dtype: str) -> str:
    """A value of one dtype as another one."""
    if source == dtype:
        return text
    if source in _SMALL_FLOATS or dtype in _SMALL_FLOATS:
        raise refused(f"conversions of {source} to {dtype}")
    if source == "bfloat16":
        return cast(f"tilec_cvt_f32_bf16({text})", "float32", dtype)
    if dtype == "bfloat16":
        return f"tilec_cvt_rn_bf16_f32({cast(text, source, 'float32')})"
    return f"{type_of(dtype)}({text})"


_NODES: dict[type, Callable[[Expressions, Expr], str]] = {
    tirx.IntImm: Expressions._integer,
    tirx.FloatImm: Expressions._float,
    Var: Expressions._variable,
    tirx.Min: Expressions._extreme,
    tirx.Max: Expressions._extreme,
    tirx.Cast: Expressions._cast,
    tirx.Select: Expressions._select,
    tirx.Not: Expressions._not,
    tirx.BitwiseNot: Expressions._inverted,
    tirx.Let: Expressions._let,
    TensorLoad: Expressions._load,
    Call: Expressions._call,
}
