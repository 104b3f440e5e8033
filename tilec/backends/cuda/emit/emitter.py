"""Which form each statement and each value of device code takes: one of GPUs, else that of all families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.byte_dots import byte_dots
from tilec.backends.cuda.emit.loops.tested_loads import tested_choice, tested_load
from tilec.backends.cuda.emit.loops.whole_tests import whole_tests
from tilec.backends.cuda.emit.statements import emit_marked
from tilec.ir.exprs import choice_of, dtype_of
from tilec.lowering.emission.values import lazy_choice

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.ir.nodes import Stmt


@dataclass(eq=False)
class DeviceEmitter(DeviceContext):
    """The context that has the forms at hand; these know it as a `DeviceContext`."""

    def emit(self, stmt: Stmt) -> tirx.Stmt | None:
        """The TIR of one statement; None where nothing is left to do."""
        return emit_marked(stmt, self)

    def faster(self, expr: Expr) -> Expr | None:
        """A sum of products of bytes as one of words."""
        return byte_dots(expr, self) if isinstance(expr, tirx.Add) else None

    def test(self, cond: Expr) -> Expr:
        """The value of a condition, one for all neighbours where that is the same."""
        return self.value(whole_tests(cond, self))

    def choice(self, cond: Expr, true: Expr, false: Expr) -> Expr:
        """A choice at run time: both sides where elements can be read under a predicate, else one of them."""
        found = tested_choice(cond, true, false, self, self.value)
        return lazy_choice(cond, self.test(cond), true, false, self) if found is None else found

    def bounds(self, buffer: Var, conds: list[Expr]) -> Expr:
        """The run-time test that an element exists, one for all neighbours where that is the same."""
        return super().bounds(buffer, [whole_tests(cond, self) for cond in conds])

    def stored(self, value: Expr, dtype: str) -> Expr:
        """As `DeviceContext.stored`; of a choice both sides where they can be read under a predicate."""
        picked = choice_of(value) if dtype_of(value) == dtype else None
        chosen = picked and tested_choice(*picked, self, lambda side: self.stored(side, dtype))
        return super().stored(value, dtype) if chosen is None else chosen

    def in_memory(self, expr: TensorLoad, raw: bool) -> Expr:
        """As `DeviceContext.in_memory`, under the predicates of choices around where that does."""
        found = tested_load(expr, self)
        if found is None:
            return super().in_memory(expr, raw)
        return found if raw else self.decode(found, str(expr.source.dtype))
