"""Expressions of TIR as C, with helpers where C has no operator, or one that means something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call, StringImm, TensorLoad, Var

from tilec.backends.cpu.c_source.externs import extern_call, intrinsic_call
from tilec.backends.cpu.c_source.helpers import Helpers, floor_division, floor_remainder, math_expression
from tilec.backends.cpu.c_source.names import Names
from tilec.backends.cpu.c_source.types import CType, c_type
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_NARROW = ("int8", "int16", "uint8", "uint16")
_BINARY = {
    tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.Div: "/", tirx.Mod: "%",
    tirx.BitwiseAnd: "&", tirx.BitwiseOr: "|", tirx.BitwiseXor: "^", tirx.LShift: "<<", tirx.RShift: ">>",
}  # fmt: skip
_COMPARED = {
    tirx.EQ: ("eq", "=="), tirx.NE: ("ne", "!="), tirx.LT: ("lt", "<"),
    tirx.LE: ("le", "<="), tirx.GT: ("gt", ">"), tirx.GE: ("ge", ">="),
}  # fmt: skip
#: As LLVM's selections after one comparison: of a NaN and a number, the second operand.
_CHOSEN = {tirx.Min: ("min", "a < b ? a : b"), tirx.Max: ("max", "a > b ? a : b")}
_CALLED_BINARY = {
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip


class Expressions:
    """Writes expressions; ``helpers`` collects what they call, ``names`` has their variables."""

    def __init__(self, helpers: Helpers, names: Names) -> None:
        self.helpers, self.names = helpers, names

    def text(self, expr: Expr | int) -> str:
        """An expression that may stand anywhere: one with an operator has brackets."""
        if isinstance(expr, int):
            return str(expr)
        kind = type(expr)
        if kind in _BINARY:
            return self._binary(expr, _BINARY[kind])
        if kind in _COMPARED:
            return self._compared(expr, *_COMPARED[kind])
        if kind in _CHOSEN:
            return self._lanewise(expr, *_CHOSEN[kind], (expr.a, expr.b))
        writer = _WRITERS.get(kind)
        if writer is None:
            raise UnsupportedError(f"there is no C for {kind.__name__}")
        return writer(self, expr)

    def bare(self, expr: Expr | int) -> str:
        """Without brackets around it, for places that end it anyway."""
        text = self.text(expr)
        return text[1:-1] if type(expr) in (*_BINARY, *_COMPARED) and text.startswith("(") else text

    def type(self, expr: Expr) -> CType:
        """The C type of an expression's value."""
        kind = c_type(dtype_of(expr))
        self.helpers.type(kind)
        return kind

    # ---- operators ----

    def _binary(self, expr: Expr, operator: str) -> str:
        made = f"({self.text(expr.a)} {operator} {self.text(expr.b)})"
        return f"(({self.type(expr).name}){made})" if _leaves_its_type(expr) else made

    def _compared(self, expr: Expr, word: str, operator: str) -> str:
        kind = self.type(expr.a)
        if not kind.is_vector:
            return f"({self.text(expr.a)} {operator} {self.text(expr.b)})"
        return f"{self.helpers.compare(word, operator, kind)}({self.text(expr.a)}, {self.text(expr.b)})"

    def _lanewise(self, expr: Expr, name: str, expression: str, arguments: Any) -> str:
        """A function that is applied lane by lane."""
        kind = self.type(expr)
        function = self.helpers.lanewise(name, kind, len(arguments), expression)
        return f"{function}({', '.join(map(self.bare, arguments))})"

    def _floordiv(self, expr: Expr) -> str:
        kind = self.type(expr)
        return self._lanewise(expr, "floordiv", floor_division(kind), (expr.a, expr.b))

    def _floormod(self, expr: Expr) -> str:
        kind = self.type(expr)
        return self._lanewise(expr, "floormod", floor_remainder(kind), (expr.a, expr.b))

    def _logical(self, expr: Expr) -> str:
        operator = {tirx.And: "&", tirx.Or: "|"}[type(expr)] * (1 if self.type(expr).is_vector else 2)
        return f"({self.text(expr.a)} {operator} {self.text(expr.b)})"

    def _not(self, expr: Expr) -> str:
        if self.type(expr).is_vector:
            return f"({self.text(expr.a)} ^ 1)"
        return f"!{self.text(expr.a)}"

    def _invert(self, expr: Expr) -> str:
        made = f"~{self.text(expr.a)}"
        return f"({self.type(expr).name}){made}" if dtype_of(expr) in _NARROW else made

    # ---- leaves ----

    def _var(self, expr: Expr) -> str:
        return self.names.of(expr)

    def _int(self, expr: Expr) -> str:
        value, dtype = int(expr.value), dtype_of(expr)
        if dtype == "int32":
            return str(value) if value > -(1 << 31) else "(-2147483647 - 1)"
        if dtype == "bool":
            return str(int(bool(value)))
        if dtype == "int64":
            return f"{value}LL" if value > -(1 << 63) else "(-9223372036854775807LL - 1)"
        if dtype == "uint64":
            return f"{value & (1 << 64) - 1}ULL"
        if dtype == "uint32":
            return f"{value & (1 << 32) - 1}u"
        return f"({c_type(dtype).element}){value}"

    def _float(self, expr: Expr) -> str:
        value, kind = float(expr.value), c_type(dtype_of(expr))
        if math.isnan(value):
            text = '__builtin_nanf("")'
        elif math.isinf(value):
            text = "__builtin_inff()" if value > 0 else "(-__builtin_inff())"
        else:
            text = repr(value) if kind.dtype == "float64" else f"{value!r}f"
        return f"({kind.element}){text}" if kind.dtype == "float16" else text

    def _load(self, expr: Expr) -> str:
        kind = self.type(expr)
        return self.element(self.names.of(expr.source), expr.indices, kind)

    def element(self, buffer: str, indices: Any, kind: CType) -> str:
        """What an element, or the vector at an index, holds."""
        (index,) = indices
        if not kind.is_vector:
            return f"{buffer}[{self.bare(index)}]"
        if _is_consecutive(index):
            return f"{self.helpers.load(kind)}({self.place(buffer, index.base)})"
        return f"{self.helpers.gather(kind, self.type(index))}({buffer}, {self.bare(index)})"

    def place(self, buffer: str, index: Expr) -> str:
        """The address of an element."""
        return f"&{buffer}[{self.bare(index)}]"

    # ---- vectors ----

    def _ramp(self, expr: Expr) -> str:
        return f"{self.helpers.ramp(self.type(expr))}({self.bare(expr.base)}, {self.bare(expr.stride)})"

    def _broadcast(self, expr: Expr) -> str:
        return f"{self.helpers.splat(self.type(expr))}({self.bare(expr.value)})"

    def _shuffle(self, expr: Expr) -> str:
        kind, parts = self.type(expr), list(expr.vectors)
        places = [int(index.value) for index in expr.indices]
        if kind.is_vector and len(parts) == 2 and all(self.type(part).is_vector for part in parts):
            listed = ", ".join(map(str, places))
            return f"__builtin_shufflevector({self.bare(parts[0])}, {self.bare(parts[1])}, {listed})"
        lanes = [(part, lane) for part in parts for lane in range(self.type(part).lanes)]
        texts = [self._lane(*lanes[place]) for place in places]
        return texts[0] if not kind.is_vector else f"({kind.name}){{{', '.join(texts)}}}"

    def _lane(self, expr: Expr, lane: int) -> str:
        return f"{self.text(expr)}[{lane}]" if self.type(expr).is_vector else self.bare(expr)

    # ---- values of other types, choices ----

    def _cast(self, expr: Expr) -> str:
        value, kind = self.type(expr.value), self.type(expr)
        if kind.is_vector:
            return f"{self.helpers.convert(value, kind)}({self.bare(expr.value)})"
        return (
            f"({self.text(expr.value)} != 0)"
            if kind.dtype == "bool"
            else f"({kind.name}){self.text(expr.value)}"
        )

    def _select(self, expr: Expr) -> str:
        return self._choice(expr, expr.condition, expr.true_value, expr.false_value)

    def _choice(self, expr: Expr, condition: Expr, one: Expr, other: Expr) -> str:
        asked = self.type(condition)
        if not asked.is_vector:
            return f"({self.text(condition)} ? {self.text(one)} : {self.text(other)})"
        function = self.helpers.select(asked, self.type(expr))
        return f"{function}({', '.join(map(self.bare, (condition, one, other)))})"

    def _let(self, expr: Expr) -> str:
        name, kind = self.names.of(expr.var), self.type(expr.value)
        return f"({{ const {kind.name} {name} = {self.bare(expr.value)}; {self.bare(expr.body)}; }})"

    # ---- calls ----

    def _call(self, expr: Expr) -> str:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        writer = _CALLS.get(name)
        if writer is not None:
            return writer(self, expr)
        if name in _CALLED_BINARY:
            return f"({self.text(expr.args[0])} {_CALLED_BINARY[name]} {self.text(expr.args[1])})"
        expression = math_expression(name, self.type(expr))
        if expression is None:
            raise UnsupportedError(f"there is no C for the function {name}")
        return self._lanewise(expr, name, expression, list(expr.args))

    def _conditional(self, expr: Expr) -> str:
        return self._choice(expr, *expr.args)

    def _reinterpret(self, expr: Expr) -> str:
        (value,) = expr.args
        if _is_pointer(expr):
            return f"({pointer_type(expr)}){self.text(value)}"
        return f"{self.helpers.reinterpret(self.type(value), self.type(expr))}({self.bare(value)})"

    def _same(self, expr: Expr) -> str:
        return self.text(expr.args[0])

    def _fma(self, expr: Expr) -> str:
        kind = self.type(expr)
        function = "__builtin_fma" if kind.dtype == "float64" else "__builtin_fmaf"
        return self._lanewise(expr, "fma", f"{function}(a, b, c)", list(expr.args))

    def _abs(self, expr: Expr) -> str:
        kind = self.type(expr)
        lane = (
            "a < 0 ? -a : a" if not kind.is_float else f"__builtin_fabs{'f' * (kind.dtype != 'float64')}(a)"
        )
        return self._lanewise(expr, "abs", lane, list(expr.args))

    def _isnan(self, expr: Expr) -> str:
        (value,) = expr.args
        kind = self.type(value)
        if kind.is_vector:
            return f"{self.helpers.compare('ne', '!=', kind)}({self.bare(value)}, {self.bare(value)})"
        return f"__builtin_isnan({self.bare(value)})"

    def _popcount(self, expr: Expr) -> str:
        kind = self.type(expr)
        unsigned = f"(uint{8 * kind.scalar.bytes}_t)a"
        return self._lanewise(expr, "popcount", f"__builtin_popcountll({unsigned})", list(expr.args))

    def _clz(self, expr: Expr) -> str:
        (value,) = expr.args
        kind = self.type(value)
        bits = 8 * kind.scalar.bytes
        lane = f"a ? __builtin_clzll((uint{bits}_t)a) - {64 - bits} : {bits}"
        counted = self._lanewise(value, "clz", lane, [value])
        if kind == self.type(expr):
            return counted
        if kind.is_vector:
            return f"{self.helpers.convert(kind, self.type(expr))}({counted})"
        return f"({self.type(expr).name}){counted}"

    def _address(self, expr: Expr) -> str:
        (load,) = expr.args
        return self.place(self.names.of(load.source), load.indices[0])

    def _prefetch(self, expr: Expr) -> str:
        where, writes, locality = expr.args[:3]
        return f"__builtin_prefetch({self.text(where)}, {int(writes.value)}, {int(locality.value)})"

    def _offset(self, expr: Expr) -> str:
        base, offset = expr.args
        return f"({pointer_type(expr)})((char *){self.text(base)} + {self.text(offset)})"

    def _extern(self, expr: Expr) -> str:
        name = str(expr.args[0].value)
        function = extern_call(name, self.type(expr) if dtype_of(expr) != "void" else None, self.helpers)
        return f"{function}({', '.join(map(self.bare, expr.args[1:]))})"

    def _intrinsic(self, expr: Expr) -> str:
        name, arguments = intrinsic_call(expr, self.type(expr), self.helpers)
        return f"{name}({', '.join(map(self.bare, arguments))})"


def _leaves_its_type(expr: Expr) -> bool:
    """Whether C gives an int where the type of an operation has 8 or 16 bits, which may then hold less."""
    leaving = (tirx.Add, tirx.Sub, tirx.Mul, tirx.LShift)
    return isinstance(expr, leaving) and dtype_of(expr) in _NARROW


def _is_consecutive(index: Expr) -> bool:
    return isinstance(index, tirx.Ramp) and getattr(index.stride, "value", None) == 1


def _is_pointer(expr: Any) -> bool:
    return hasattr(expr.ty, "element_type")


def pointer_type(expr: Any) -> str:
    """The C type of a pointer; of one to nothing known, to bytes."""
    element = getattr(expr.ty, "element_type", None)
    dtype = str(getattr(element, "dtype", "uint8"))
    return f"{c_type(dtype).element} *" if dtype not in ("void", "handle") else "uint8_t *"


def _quoted(_self: Expressions, expr: Any) -> str:
    """A text as a literal of C, a byte at a time where it is not plain."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
             for byte in str(expr.value).encode())  # fmt: skip
    return f'"{"".join(plain)}"'


_WRITERS: dict[type, Callable[[Expressions, Any], str]] = {
    tirx.FloorDiv: Expressions._floordiv,
    tirx.FloorMod: Expressions._floormod,
    tirx.And: Expressions._logical,
    tirx.Or: Expressions._logical,
    tirx.Not: Expressions._not,
    tirx.BitwiseNot: Expressions._invert,
    Var: Expressions._var,
    tirx.IntImm: Expressions._int,
    tirx.FloatImm: Expressions._float,
    TensorLoad: Expressions._load,
    tirx.Ramp: Expressions._ramp,
    tirx.Broadcast: Expressions._broadcast,
    tirx.Shuffle: Expressions._shuffle,
    tirx.Cast: Expressions._cast,
    tirx.Select: Expressions._select,
    tirx.Let: Expressions._let,
    Call: Expressions._call,
    StringImm: _quoted,
}
_CALLS: dict[str, Callable[[Expressions, Any], str]] = {
    "if_then_else": Expressions._conditional,
    "reinterpret": Expressions._reinterpret,
    "likely": Expressions._same,
    "fma": Expressions._fma,
    "abs": Expressions._abs,
    "fabs": Expressions._abs,
    "isnan": Expressions._isnan,
    "popcount": Expressions._popcount,
    "clz": Expressions._clz,
    "address_of": Expressions._address,
    "prefetch": Expressions._prefetch,
    "handle_add_byte_offset": Expressions._offset,
    "call_extern": Expressions._extern,
    "call_pure_extern": Expressions._extern,
    "call_llvm_pure_intrin": Expressions._intrinsic,
    "call_llvm_intrin": Expressions._intrinsic,
    "bitwise_not": lambda self, expr: f"~{self.text(expr.args[0])}",
    "break_loop": lambda self, expr: "break",
    "continue_loop": lambda self, expr: "continue",
}
