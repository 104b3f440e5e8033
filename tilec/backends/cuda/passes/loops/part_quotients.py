"""Quotients and remainders of ``q * n + r`` by a run-time ``n``, with r known to lie below it, are q and r:
views of a tensor in another shape count its elements through, and those of a row are neighbours again.
Those by a number that lose a variable, as of ``k * 64 + i`` by 128, are one for all rows of a tile: scales of
groups are read and converted once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, loads, operands, over, same, summands
from tilec.ir.nodes import Bind, If, Kernel, Launch, Stmt, Store
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target


class PartQuotients(Pass):
    """In: stores whose places, or the places of what they read, are split by quotients, and branches around
    them. Out: the same places without the quotients and remainders whose outcome is known; branches that ask
    no longer what stores ask for themselves, whether their element exists."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with simpler places."""

        def rewrite(launch: Launch) -> Launch:
            parting = _Parting(kernel, launch)
            return parting.launch_with(parting.block(launch.body))

        return rewrite_launches(kernel, rewrite)


class _Parting(ScopedRewrite):
    """Rewrites the stores of one launch."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Stores and names over simpler places; branches without the tests that these need no more."""
        if isinstance(stmt, Bind):
            stmt = replace(stmt, value=self._parted(stmt.value))
        if isinstance(stmt, Store):
            indices = tuple(map(self._parted, stmt.indices))
            return [replace(stmt, indices=indices, value=self._parted(stmt.value))]
        return _without_bounds(self.branch(stmt)) if isinstance(stmt, If) else super().stmt(stmt)

    def _parted(self, expr: Expr) -> Expr:
        """An expression, innermost quotients first."""
        old = operands(expr)
        expr = over(expr, old, tuple(map(self._parted, old)))
        if not isinstance(expr, (tirx.FloorDiv, tirx.FloorMod)):
            return expr
        if int_value(expr.b) is not None:
            return self._of_fewer(expr)
        outcome = self._outcome(expr.a, expr.b, isinstance(expr, tirx.FloorDiv))
        return expr if outcome is None else outcome

    def _of_fewer(self, expr: Expr) -> Expr:
        """An expression without some of its variables, where these change nothing."""
        used = set(undefined_vars(expr))
        if len(used) == 1 or next(loads(expr), None) is not None:
            return expr
        made = self.facts.simplify(expr)
        return made if set(undefined_vars(made)) < used else expr

    def _outcome(self, value: Expr, by: Expr, is_quotient: bool) -> Expr | None:
        """The quotient or the remainder; None where the rest is not known to be one."""
        zero = tirx.const(0, dtype_of(value))
        quotient: Expr = zero
        rest: Expr = zero
        for term in summands(value):
            times = _times(term, by)
            if times is None:
                rest = rest + term
            else:
                quotient = quotient + times
        if self.facts.prove(rest >= zero) is not True or self.facts.prove(rest < by) is not True:
            return None
        return quotient if is_quotient else rest


def _without_bounds(branch: If) -> list[Stmt]:
    """A branch around stores without the tests that the elements exist, which stores make themselves."""
    stores = [stmt for stmt in branch.then if isinstance(stmt, Store)]
    if branch.orelse or not stores or len(stores) != len(branch.then):
        return [branch]
    left = [part for part in conjuncts(branch.cond) if not all(_is_bound(part, store) for store in stores)]
    return [replace(branch, cond=all_of(left))] if left else list(branch.then)


def _is_bound(part: Expr, store: Store) -> bool:
    """Whether a condition says that one of a store's indices is below the extent of its axis."""
    axes = zip(store.indices, store.buffer.shape, strict=True)
    return isinstance(part, tirx.LT) and any(
        same(part.a, index) and same(part.b, extent) for index, extent in axes
    )


def _times(term: Expr, by: Expr) -> Expr | None:
    """How many times ``by`` a term is; None where that is no factor of it."""
    if same(term, by):
        return tirx.const(1, dtype_of(term))
    if not isinstance(term, tirx.Mul):
        return None
    for one, other in ((term.a, term.b), (term.b, term.a)):
        found = _times(one, by)
        if found is not None:
            return found * other
    return None
