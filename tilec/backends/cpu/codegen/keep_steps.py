"""Mathematical functions as their steps, each in an array of a thread, which LLVM has in registers; names of
quotients by run-time values are such, too.

    y = tanh(x) + 1    ->    a = array(1); a[0] = clamp(x); b = array(1); b[0] = a[0] * a[0]; ..; y = .. + 1

So are quotients that quotients are made of, and names in the condition of a branch. A choice of which one
side has such steps becomes a branch, in which that side has them:

    y = if_then_else(c, tanh(x), 0)    ->    r = array(1); if c: a = array(1); ..; r[0] = ..  else: r[0] = 0

Names inside of an expression would do but for TVM's analyzer, which puts the value of each name into all that
it simplifies: for functions of functions and quotients of quotients that takes exponential time, and memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call, Var

from tilec.backends.cpu.math import expanded, is_expanded
from tilec.ir.exprs import dtype_of, operands, over, walk
from tilec.lowering.analysis.conditions import has_quotient, is_quotient
from tilec.lowering.emission.body_passes import body_pass
from tilec.lowering.emission.long_names import array_of, in_array
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tvm.ir import Expr

    from tilec.lowering.emission.body_passes import Rewrite

#: Calls that evaluate some of their arguments alone.
_LAZY = ("tirx.if_then_else", "prim.if_then_else")


def keep_steps() -> Any:
    """The pass of functions of TVM that does so."""
    return body_pass("KeepSteps", lambda _function: _Statements().rewrites())


class _Statements:
    """Rewrites the statements of a function. TVM comes to the values of a statement right before the
    statement: Python walks through those alone where one of the few nodes was that make steps."""

    def __init__(self) -> None:
        self._met = False

    def rewrites(self) -> Sequence[Rewrite]:
        """What `body_pass` takes."""
        return [
            ((Call, tirx.Let, tirx.FloorDiv, tirx.FloorMod), self._meet),
            (tirx.Bind, self._bind),
            (tirx.BufferStore, self._store),
            (tirx.Evaluate, self._evaluate),
            (tirx.IfThenElse, self._branch),
        ]

    def _meet(self, node: Expr) -> Expr:
        self._met = self._met or _has_own_steps(node)
        return node

    def _may_have_steps(self, value: Expr) -> bool:
        met, self._met = self._met, False
        return met and any(map(_has_own_steps, walk(value)))

    def _bind(self, stmt: tirx.Bind) -> tirx.Stmt:
        steps = _Steps()
        value = steps.value(stmt.value) if self._may_have_steps(stmt.value) else stmt.value
        if not steps.made and not has_quotient(value):
            return stmt
        return steps.before(tirx.Bind(stmt.var, steps.held(stmt.var, value)))

    def _store(self, stmt: tirx.BufferStore) -> tirx.Stmt:
        return self._behind(stmt, lambda value: tirx.BufferStore(stmt.buffer, value, list(stmt.indices)))

    def _evaluate(self, stmt: tirx.Evaluate) -> tirx.Stmt:
        return self._behind(stmt, tirx.Evaluate)

    def _branch(self, stmt: tirx.IfThenElse) -> tirx.Stmt:
        if not is_costly(stmt.condition):
            return stmt
        steps = _Steps()
        condition = steps.value(stmt.condition)
        return steps.before(tirx.IfThenElse(condition, stmt.then_case, stmt.else_case))

    def _behind(self, stmt: Any, over: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
        """A statement, which ``over`` makes of a value, behind the steps of its value; itself where it has
        none."""
        if not self._may_have_steps(stmt.value):
            return stmt
        steps = _Steps()
        value = steps.value(stmt.value)
        return steps.before(over(value)) if steps.made else stmt


def _has_own_steps(node: Expr) -> bool:
    """Whether a node, whatever it is over, is a name or becomes several steps."""
    return type(node) is tirx.Let or _grows(node)


def is_costly(value: Expr) -> bool:
    """Whether a value has functions that become arithmetic, or quotients of quotients by run-time values, by
    names, too."""
    nodes = list(walk(value))
    if any(map(_grows, nodes)):
        return True
    return sum(map(_is_floor, nodes)) > 1 and any(isinstance(node, tirx.Let) for node in nodes)


def _grows(node: Expr) -> bool:
    """Whether an operation becomes several, over operands that do."""
    if isinstance(node, Call):
        return is_expanded(node)
    return _is_floor(node) and any(map(has_quotient, operands(node)))


def _is_floor(node: Expr) -> bool:
    """Whether a node is a quotient, or a remainder, that becomes several operations."""
    return type(node) in (tirx.FloorDiv, tirx.FloorMod) and is_quotient(node)


class _Steps:
    """Rewrites one value; ``made`` are the statements in front of it, ``held`` what the names around it
    are."""

    def __init__(self, held: Mapping[Var, Expr] | None = None) -> None:
        self.made: list[tirx.Stmt] = []
        self._held: dict[Var, Expr] = dict(held or {})

    def before(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """The statement behind its steps."""
        return tirx.SeqStmt([*self.made, stmt]) if self.made else stmt

    def value(self, expr: Expr) -> Expr:
        """The value without names of its own, but in what it may not evaluate."""
        if isinstance(expr, Var):
            return self._held.get(expr, expr)
        if isinstance(expr, tirx.Let):
            self._held[expr.var] = self.held(expr.var, self.value(expr.value))
            return self.value(expr.body)
        if isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in _LAZY:
            return self._chosen(expr)
        made = _mapped(expr, self._operand if _is_floor(expr) else self.value)
        arithmetic = expanded(made) if isinstance(made, Call) else None
        return made if arithmetic is None else self.value(arithmetic)

    def _operand(self, expr: Expr) -> Expr:
        """An operand of a quotient, with a name where it is computed from one."""
        made = self.value(expr)
        return self.held(tirx.Var("part", dtype_of(made)), made) if has_quotient(made) else made

    def _chosen(self, choice: Call) -> Expr:
        """The value of a choice: of a branch where one of its sides is costly."""
        test, *sides = choice.args
        if lanes_of(test) > 1 or not any(map(is_costly, sides)):
            return _mapped(choice, self._inside)
        array, place = array_of("chosen", choice)
        branch = tirx.IfThenElse(self.value(test), *(self._side(side, array, place) for side in sides))
        self.made += [tirx.AllocBuffer(array), branch]
        return tirx.BufferLoad(array, [place])

    def _side(self, value: Expr, array: tirx.Buffer, place: Expr) -> tirx.Stmt:
        """The store of one side's value, behind its own steps."""
        steps = _Steps(self._held)
        stored = steps.value(value)
        return steps.before(tirx.BufferStore(array, stored, [place]))

    def _inside(self, expr: Expr) -> Expr:
        """A part of a choice: its own steps stay where they are."""
        if isinstance(expr, Var):
            return self._held.get(expr, expr)
        if isinstance(expr, tirx.Let):
            return tirx.Let(expr.var, self._inside(expr.value), self._inside(expr.body))
        return _mapped(expr, self._inside)

    def held(self, var: Var, value: Expr) -> Expr:
        """What has the value of ``var`` from here on."""
        stored, read = in_array(var, value)
        self.made += stored
        return read


def _mapped(expr: Expr, make: Callable[[Expr], Expr]) -> Expr:
    """An expression over what ``make`` makes of its operands."""
    old = operands(expr)
    return over(expr, old, tuple(map(make, old)))
