"""What elements of tensors hide of a tile is looked at one by one only where they hide something.

    S[i, j] = if_then_else(keep[j] != 0, S[i, j] * scale, other)
    ->    S[i, j] = S[i, j] * scale
          if any(keep[j] == 0): S[i, j] = if_then_else(keep[j] != 0, S[i, j], other)

The lanes of a warp test the columns together, beside the product that they wait for; rows they test in front
of the loop. ``ids[i] == names[j]`` holds for all of a tile where all of both are what the first row has.
Padding, and documents one behind the other, leave most tiles whole; where most are not, such a tile costs a
few instructions more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.trips.cuts import conditions
from tilec.backends.cuda.attention.nodes import AttentionRoles, Vote
from tilec.backends.cuda.attention.passes.find_masks import choice_in, is_own
from tilec.backends.cuda.attention.passes.read_beside import behind_products
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, copied, with_loops
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import dtype_of, loads, substitute, uses, variables_of
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Stmt, Store, is_global, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.conditions import opposite
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch

_ZERO = tirx.const(0, "int32")


class VoteOnMasks(AttentionPass):
    """In: AttentionRoles whose consumers have serial loops with thread loops that choose. Out: of such a loop
    what it keeps, and behind it, where a Vote found something hidden, the choice."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with votes."""
        written = written_in(roles.consumer)
        return replace(roles, consumer=with_loops(roles.consumer, lambda loop: _loop(loop, written)))


def _loop(loop: For, written: Collection[Var]) -> Block:
    """A loop, in front of it what is known of rows in all of its trips."""
    own = {loop.var, *(var for stmt in walk(loop.body) for var in defined(stmt))}
    early: list[Stmt] = []
    body: list[Stmt] = []
    for stmt in loop.body:
        mask = _Mask.of(stmt, written) if isinstance(stmt, ThreadLoop) else None
        if mask is None:
            body.append(stmt)
            continue
        found = [(each, tirx.decl_buffer((1,), "int32", "hidden", scope="local.var")) for each in mask.tests]
        for test, flag in found:
            at = behind_products(body)
            vote = (Alloc(flag), test.vote(flag))
            if test.depends_on(own):
                body[at:at] = vote
            else:
                early += vote
        body += mask.parts([flag for _, flag in found])
    return (*early, replace(loop, body=tuple(body)))


@dataclass(frozen=True, eq=False)
class _Test:
    """``hides`` is true for some of the ``extent`` values of ``var`` where a tile is not whole."""

    var: Var
    extent: int
    hides: Expr

    def depends_on(self, names: set[Var]) -> bool:
        """Whether one of other names is in it."""
        return uses(self.hides, names - {self.var})

    def vote(self, flag: Var) -> Vote:
        """The test of all values, for a flag."""
        var = tirx.Var(self.var.name, dtype_of(self.var))
        body = (Bind(tirx.Var("hides", "bool"), substitute(self.hides, {self.var: var})),)
        return Vote(flag, var, self.extent, body)


@dataclass(frozen=True, eq=False)
class _Mask:
    """A ``loop`` that stores ``kept`` where its condition ``holds``, else ``other``; all of it is kept where
    no test finds anything."""

    loop: ThreadLoop
    store: Store
    holds: Expr
    kept: Expr
    other: Expr
    tests: tuple[_Test, ...]

    @classmethod
    def of(cls, loop: ThreadLoop, written: Collection[Var]) -> _Mask | None:
        """The mask that a loop over a tile is; None where it is none that warps can vote on."""
        found = choice_in(loop)
        if found is None:
            return None
        store, sides = found
        for holds, kept, other in sides:
            made = cls(loop, store, holds, kept, other, ())
            if made._keeps_its_own(written):
                tests = [test for part in conditions(holds) for test in _tests(part, loop)]
                return replace(made, tests=tuple(tests)) if tests and all(tests) else None  # type: ignore
        return None

    def _keeps_its_own(self, written: Collection[Var]) -> bool:
        """Whether an element stays what is made of it, and the others and the condition are not: these read
        what nothing here writes."""
        read = {load.source for load in loads(self.holds)}
        others = {load.source for load in loads(self.other)}
        return (
            any(is_own(load, self.store) for load in loads(self.kept))
            and self.store.buffer not in others | read
            and bool(read)
            and not any(buffer in written for buffer in read)
            and all(is_global(buffer) for buffer in read)
            and not any(is_global(load.source) for load in loads(self.kept))
        )

    def parts(self, flags: list[Var]) -> Block:
        """What is kept of all elements, and the choice where a flag says so."""
        element = tirx.BufferLoad(self.store.buffer, list(self.store.indices))
        chosen = replace(self.store, value=tirx.if_then_else(self.holds, element, self.other))
        found = tirx.BufferLoad(flags[0], [_ZERO])
        for flag in flags[1:]:
            found = found | tirx.BufferLoad(flag, [_ZERO])
        choice = If(tirx.NE(found, _ZERO), copied((replace(self.loop, body=(chosen,)),), {}), ())
        if is_own(self.kept, self.store):
            return (choice,)
        return replace(self.loop, body=(replace(self.store, value=self.kept),)), choice


def _tests(part: Expr, loop: ThreadLoop) -> list[_Test | None]:
    """What to test for a part of a condition; None for one that is open."""
    tests = {
        var: _Test(var, extent, opposite(part)) for var, extent in zip(loop.vars, loop.extents, strict=True)
    }
    found = [var for var in variables_of([part]) if var in tests]
    if len(found) == 1:
        return [tests[found[0]]]
    if isinstance(part, tirx.Not) and isinstance(part.a, tirx.NE):
        part = tirx.EQ(part.a.a, part.a.b)
    if not isinstance(part, tirx.EQ):
        return [None]
    row, column = loop.vars
    sides = (part.a, part.b) if uses(part.a, (row,)) else (part.b, part.a)
    if uses(sides[0], (column,)) or uses(sides[1], (row,)):
        return [None]
    first = substitute(sides[0], {row: tirx.const(0, dtype_of(row))})
    return [
        replace(tests[var], hides=tirx.NE(side, first)) for var, side in zip(loop.vars, sides, strict=True)
    ]
