"""Looking at TVM expressions, node kind by node kind, and replacing parts of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.tirx.analysis import undefined_vars

if TYPE_CHECKING:
    from tvm.ir import Expr

_Kind = TypeVar("_Kind", bound="Expr")
#: Classes with operands ``a`` and ``b``.
BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max,
    tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift,
)  # fmt: skip
COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
LOGIC = (tirx.And, tirx.Or)
DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)

#: A slice takes a fraction of the time of an array's iterator.
_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((*BINARY, *COMPARE, *LOGIC), attrgetter("a", "b")),
    tirx.Not: lambda expr: (expr.a,),
    tirx.BitwiseNot: lambda expr: (expr.a,),
    tirx.Cast: lambda expr: (expr.value,),
    tirx.Select: attrgetter("condition", "true_value", "false_value"),
    tirx.Let: attrgetter("value", "body"),
    tirx.Ramp: attrgetter("base", "stride", "lanes"),
    tirx.Broadcast: attrgetter("value", "lanes"),
    tirx.Shuffle: lambda expr: (*expr.vectors[:], *expr.indices[:]),
    TensorLoad: lambda expr: tuple(expr.indices[:]),
    Call: lambda expr: tuple(expr.args[:]),
}
#: Subexpressions of a value that names are written out in.
_LONGEST = 1 << 12
#: What calls of TVM's that raise a number to a power are named.
EXPONENTIALS = ("tirx.exp", "tirx.exp2", "tirx.exp10")


#: Names of types by their addresses: TVM has one object for each type, which is kept here, so that no other
#: gets its address. It takes four times as long to spell one.
_NAMES: dict[int, tuple[Any, str]] = {}


def dtype_of(expr: Expr) -> str:
    """The dtype of an expression as TVM names it, lanes included; "handle" of pointers and texts."""
    ty = expr.ty
    known = _NAMES.get(ty.__chandle__())
    if known is None:
        known = _NAMES[ty.__chandle__()] = (ty, str(getattr(ty, "dtype", "handle")))
    return known[1]


def scalar_dtype(expr: Expr) -> str:
    """The dtype of one lane."""
    return _one_lane(dtype_of(expr))


@cache
def _one_lane(dtype: str) -> str:
    return str(tvm_ffi.dtype(dtype).with_lanes(1))


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    parts = _OPERANDS.get(type(expr))
    return () if parts is None else parts(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, parents first."""
    left = [expr]
    while left:
        node = left.pop()
        yield node
        parts = _OPERANDS.get(type(node))
        if parts is not None:
            left.extend(parts(node)[::-1])


def loads(expr: Expr) -> Iterator[TensorLoad]:
    """Every element read in ``expr``, those inside indices too."""
    return (node for node in walk(expr) if type(node) is TensorLoad)


def reads(expr: Expr, buffers: Container[Var]) -> bool:
    """Whether ``expr`` reads an element of one of ``buffers``."""
    return any(load.source in buffers for load in loads(expr))


def same(a: Expr, b: Expr) -> bool:
    """Structural equality over identical variables."""
    return a.same_as(b) or bool(tvm_ffi.structural_equal(a, b))


def same_all(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Structural equality of two index tuples."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def each_once(exprs: Iterable[_Kind]) -> list[_Kind]:
    """Expressions in order, without those that stand there before."""
    found: list[_Kind] = []
    for expr in exprs:
        if not any(same(expr, other) for other in found):
            found.append(expr)
    return found


def int_value(expr: Expr | int) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if type(expr) is tirx.IntImm else None


def is_zero(expr: Expr) -> bool:
    """Whether ``expr`` is a constant that is 0, of integers or floats."""
    return isinstance(expr, (tirx.IntImm, tirx.FloatImm)) and float(expr.value) == 0


def same_number(a: Expr | int, b: Expr | int) -> bool:
    """Whether both are literals of one integer."""
    return int_value(a) is not None and int_value(a) == int_value(b)


def as_extent(expr: Expr) -> Expr | int:
    """The value of an integer literal, or the expression itself."""
    known = int_value(expr)
    return expr if known is None else known


def int32(value: int) -> Expr:
    """An integer literal of 32 bits: a place, a lane, a count."""
    return tirx.const(value, "int32")


def as_expr(value: Expr | int, dtype: str = "int32") -> Expr:
    """A value; a number as one of ``dtype``, or of int64 where 32 bits do not hold it."""
    if not isinstance(value, int):
        return value
    return tirx.const(value, dtype if dtype != "int32" or -(2**31) <= value < 2**31 else "int64")


def rebuild(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """``expr`` over other subexpressions (in the order of `operands`)."""
    kind = type(expr)
    if kind is TensorLoad:
        return tirx.BufferLoad(expr.source, list(new))
    if kind is Call:
        return Call(expr.op, list(new), ret_ty=expr.ty)
    if kind is tirx.Shuffle:
        count = len(expr.vectors)
        return tirx.Shuffle(list(new[:count]), list(new[count:]))
    if kind is tirx.Cast:
        return tirx.Cast(expr.ty, new[0])
    if kind is tirx.Let:
        return tirx.Let(expr.var, *new)
    return kind(*new)


def over(expr: Expr, old: tuple[Expr, ...], new: tuple[Expr, ...]) -> Expr:
    """As `rebuild`; ``expr`` itself where these are its ``old`` subexpressions."""
    if all(a is b or a.same_as(b) for a, b in zip(old, new, strict=True)):
        return expr
    return rebuild(expr, new)


def transform(expr: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """``expr`` with every subexpression for which ``visit`` gives one replaced, outermost first."""
    replacement = visit(expr)
    if replacement is not None:
        return replacement
    old = operands(expr)
    if not old:
        return expr
    return over(expr, old, tuple([transform(part, visit) for part in old]))


def with_part(expr: Expr, part: Expr, value: Expr) -> Expr:
    """``expr`` with another value for a part of it."""
    return transform(expr, lambda node: value if same(node, part) else None)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    if not _names_some(expr, values):
        return expr
    return transform(expr, lambda node: values.get(node) if type(node) is Var else None)


def _names_some(expr: Expr, values: Mapping[Var, Expr]) -> bool:
    return bool(values) and any(var in values for var in undefined_vars(expr))


def lane_of(expr: Expr) -> Expr:
    """What every lane of a value has where all have the same; other values as they are."""
    return expr.value if type(expr) is tirx.Broadcast else expr


def cast_to(value: Expr, dtype: str) -> Expr:
    """``value`` in another dtype."""
    return value if dtype_of(value) == dtype else tirx.Cast(dtype, value)


def uncast(expr: Expr) -> Expr:
    """What an expression is a conversion of, or one of one."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def summands(expr: Expr) -> list[Expr]:
    """The parts of a sum."""
    return [*summands(expr.a), *summands(expr.b)] if isinstance(expr, tirx.Add) else [expr]


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction, written with ``and`` or with ``&``."""
    if isinstance(cond, tirx.And) or (isinstance(cond, tirx.BitwiseAnd) and dtype_of(cond) == "bool"):
        return (*conjuncts(cond.a), *conjuncts(cond.b))
    return (cond,)


def all_of(conds: list[Expr]) -> Expr:
    """The conjunction of one or more conditions."""
    result = conds[0]
    for cond in conds[1:]:
        result = tirx.And(result, cond)
    return result


def inlined(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced, those that the replacements mention too; each replacement is made
    once."""
    whole: dict[Var, Expr] = {}

    def visit(node: Expr) -> Expr | None:
        if type(node) is not Var or node not in values:
            return None
        if node not in whole:
            whole[node] = transform(values[node], visit)
        return whole[node]

    return transform(expr, visit) if _names_some(expr, values) else expr


def may_inline(exprs: Iterable[Expr], values: Mapping[Var, Expr]) -> bool:
    """Whether expressions with names written out have a length that can be worked with."""
    return all(length(expr, values) <= _LONGEST for expr in exprs)


def length(expr: Expr, values: Mapping[Var, Expr]) -> int:
    """How many subexpressions `inlined` makes, without making them: 40 names of which each is the sum of the
    one before with itself are a million millions."""
    known: dict[Var, int] = {}

    def of(expr: Expr) -> int:
        return sum(of_name(node) if isinstance(node, Var) and node in values else 1 for node in walk(expr))

    def of_name(name: Var) -> int:
        if name not in known:
            known[name] = of(values[name])
        return known[name]

    return of(expr)


def uses(expr: Expr, variables: Container[Var]) -> bool:
    """Whether ``expr`` mentions one of ``variables``."""
    names = (node for node in walk(expr) if type(node) is Var)
    if not isinstance(variables, (tuple, list)):
        return any(name in variables for name in names)
    addresses = {var.__chandle__() for var in variables}  # to compare variables themselves takes far longer
    return any(name.__chandle__() in addresses for name in names)


def variables_of(exprs: Iterable[Expr]) -> list[Var]:
    """The variables that expressions mention, each once."""
    return list(dict.fromkeys(node for expr in exprs for node in walk(expr) if isinstance(node, Var)))


def linear_in(expr: Expr, variables: Sequence[Var]) -> list[Expr]:
    """The factors of ``variables`` in ``expr``, then what is left without them; nothing where it is not
    linear. Casts of indices to 64 bits do not count."""
    if not any(isinstance(node, tirx.Cast) for node in walk(expr)):
        return list(sym.detect_linear_equation(expr, list(variables)))
    narrow = [var for var in variables if dtype_of(var) != "int64"]
    twins = {var: tirx.Var(str(var.name), "int64") for var in narrow}
    expr = transform(expr, lambda node: _spread(node, twins))
    if uses(expr, twins):
        return []
    return list(sym.detect_linear_equation(expr, [twins.get(var, var) for var in variables]))


def _spread(node: Expr, twins: Mapping[Var, Expr]) -> Expr | None:
    """A cast to 64 bits of a sum, a difference or a product as one of casts."""
    if not isinstance(node, tirx.Cast) or dtype_of(node) != "int64" or dtype_of(node.value) != "int32":
        return None
    inner = node.value
    if isinstance(inner, Var):
        return twins.get(inner, node)
    if not isinstance(inner, (tirx.Add, tirx.Sub, tirx.Mul)):
        return node
    sides = (_widened(side, twins) for side in (inner.a, inner.b))
    return type(inner)(*sides)


def _widened(side: Expr, twins: Mapping[Var, Expr]) -> Expr:
    number = int_value(side)
    if number is not None:
        return tirx.const(number, "int64")
    cast = tirx.Cast("int64", side)
    spread = _spread(cast, twins)
    return cast if spread is None else spread


def choice_of(expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Condition, value and other value of a choice; None for other expressions."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, Call) and getattr(expr.op, "name", "").endswith("if_then_else"):
        return tuple(expr.args)
    return None
