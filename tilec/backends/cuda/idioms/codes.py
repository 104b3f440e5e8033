"""Codes: numbers of few bits that elements hold, and what is computed of one alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from tilec.ir.analysis.numbers.intervals import Interval, combined, of_type
from tilec.ir.exprs import cast_to, dtype_of, operands, same, transform
from tilec.ir.exprs import walk as walk_expr

#: Numbers that a code may be.
MOST = 32
#: Instructions that take one of the slower units, four of the others' in the time.
_CONVERSION, _FUNCTION = 4, 8
_FUNCTIONS = ("exp", "exp2", "exp10", "log", "log2", "log10", "pow", "sqrt", "rsqrt", "tanh", "sigmoid")
_PURE = (*_FUNCTIONS, "if_then_else", "reinterpret", "fabs", "floor", "ceil", "ldexp", "copysign", "popcount")


@dataclass(eq=False)
class Codes:
    """``names`` are those of one iteration, with what they stand for."""

    names: Mapping[Var, Expr]
    _known: dict[Var, Expr | bool] = field(default_factory=dict)
    _ranges: dict[Var, Interval] = field(default_factory=dict)
    _reads: dict[Var, bool] = field(default_factory=dict)

    def of(self, expr: Expr) -> Expr | None:
        """The code of which ``expr`` is a function, alone; None where there is none."""
        found = self._origin(expr)
        return None if isinstance(found, bool) else found

    def size(self, code: Expr) -> int:
        """How many numbers a code may be."""
        return self._range(code).high + 1

    def cost(self, expr: Expr, code: Expr) -> int:
        """The instructions that make ``expr`` of its code."""
        return self._cost(expr, code, set())

    def meaning(self, expr: Expr, code: Expr, number: Var) -> Expr:
        """``expr`` with ``number`` in place of its code, without names, each of which is written out once."""
        whole: dict[Var, Expr] = {}

        def visit(part: Expr) -> Expr | None:
            if same(part, code):
                return cast_to(number, dtype_of(code))
            if not isinstance(part, Var) or part not in self.names:
                return None
            if part not in whole:
                whole[part] = transform(self.names[part], visit)
            return whole[part]

        return transform(expr, visit)

    def _origin(self, expr: Expr) -> Expr | bool:
        """A code; True of what no element decides, False of all else."""
        if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
            return True
        if isinstance(expr, Var):
            return self._named(expr)
        parts = [self._origin(part) for part in operands(expr)]
        found = [part for part in parts if not isinstance(part, bool)]
        alone = len(found) == sum(part is not True for part in parts)
        if alone and _is_pure(expr) and all(same(part, found[0]) for part in found):
            return found[0] if found else True
        return expr if self._is_few(expr) else False

    def _named(self, var: Var) -> Expr | bool:
        if var not in self.names:
            return False
        if var not in self._known:
            origin = self._origin(self.names[var])
            self._known[var] = var if self.names[var].same_as(origin) else origin
        return self._known[var]

    def _is_few(self, expr: Expr) -> bool:
        few = _is_integer(expr) and self._range(expr).fits(Interval(0, MOST - 1))
        return few and self._loads(expr)

    def _loads(self, expr: Expr) -> bool:
        """Whether an element decides ``expr``."""
        return any(isinstance(node, TensorLoad) or self._name_loads(node) for node in walk_expr(expr))

    def _name_loads(self, node: Expr) -> bool:
        if not isinstance(node, Var) or node not in self.names:
            return False
        if node not in self._reads:
            self._reads[node] = self._loads(self.names[node])
        return self._reads[node]

    def _range(self, expr: Expr) -> Interval:
        """The numbers that an integer may be."""
        if not isinstance(expr, Var) or expr not in self.names:
            return self._range_of(expr)
        if expr not in self._ranges:
            self._ranges[expr] = self._range(self.names[expr])
        return self._ranges[expr]

    def _range_of(self, expr: Expr) -> Interval:
        whole, found = of_type(dtype_of(expr)), None
        if isinstance(expr, tirx.IntImm):
            found = Interval(int(expr.value), int(expr.value))
        elif isinstance(expr, tirx.Cast) and _is_integer(expr.value):
            found = self._range(expr.value)
        elif len(operands(expr)) == 2 and all(map(_is_integer, operands(expr))):
            found = combined(type(expr), *map(self._range, operands(expr)))
        return whole if found is None or not found.fits(whole) else found

    def _cost(self, expr: Expr, code: Expr, seen: set[Var]) -> int:
        """Each name once, and none for the code."""
        if same(expr, code):
            return 0
        if not isinstance(expr, Var):
            return _own_cost(expr) + sum(self._cost(part, code, seen) for part in operands(expr))
        if expr in seen or expr not in self.names:
            return 0
        seen.add(expr)
        return self._cost(self.names[expr], code, seen)


def _is_integer(expr: Expr) -> bool:
    return dtype_of(expr).lstrip("u") in ("int8", "int16", "int32", "int64", "bool")


def _is_pure(expr: Expr) -> bool:
    """Whether ``expr`` reads no memory, and has a value for any number: whole ones have no quotient by 0."""
    if isinstance(expr, (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)) and _is_integer(expr):
        return isinstance(expr.b, tirx.IntImm)
    return _name(expr) in _PURE if isinstance(expr, Call) else not isinstance(expr, TensorLoad)


def _name(call: Call) -> str:
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def _own_cost(expr: Expr) -> int:
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return 0
    if isinstance(expr, tirx.Cast):
        return 0 if _is_integer(expr) and _is_integer(expr.value) else _CONVERSION
    return _FUNCTION if isinstance(expr, Call) and _name(expr) in _FUNCTIONS else 1
