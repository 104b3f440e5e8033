"""Loops and branches, conditions, lines for people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.hints import Hints
from tilec.ir.stmt import Block, Defines, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


FOR_KINDS = ("serial", "unroll", "vectorized")


@dataclass(frozen=True, eq=False)
class Parallel(Stmt):
    """Independent iterations ``vars[d] in [0, extents[d])``, each exactly once, in any order; an accumulation
    into a fragment element shared by several iterations counts each once."""

    syntax = "parallel(*extents, dtypes=, hints=)"

    vars: Defines[tuple[Var, ...]]
    extents: tuple[int | Expr, ...]
    body: Block
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, eq=False)
class Pipelined(Stmt):
    """A sequential loop ``var in [start, stop)`` whose copies may be multi-buffered ``num_stages`` deep;
    results never depend on it. ``stage`` and ``order`` are the author's explicit schedule, or None."""

    syntax = "pipelined(start, stop, num_stages=, stage=, order=, dtypes=)"

    var: Defines[Var]
    start: Expr
    stop: Expr
    body: Block
    num_stages: int = 0
    stage: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class For(Stmt):
    """A sequential loop ``for var in range(start, stop, step)``; kind: one of FOR_KINDS."""

    syntax = "{kind}(start, stop, step)"
    kinds = FOR_KINDS

    kind: str
    var: Defines[Var]
    start: Expr
    stop: Expr
    step: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class While(Stmt):
    """``cond`` is evaluated before each trip."""

    syntax = ""

    cond: Expr
    body: Block


#: What runs its body again and again, in order.
LOOPS = (For, Pipelined, While)


@dataclass(frozen=True, eq=False)
class If(Stmt):
    """A runtime branch."""

    syntax = ""

    cond: Expr
    then: Block
    orelse: Block = ()


@dataclass(frozen=True, eq=False)
class Rest(If):
    """A branch with what runs in the threads that have not ended. They meet as all threads did before."""


@dataclass(frozen=True, eq=False)
class Break(Stmt):
    """Leaves the innermost For, Pipelined or While."""

    syntax = ""


@dataclass(frozen=True, eq=False)
class Continue(Stmt):
    """Ends this trip of the innermost For, Pipelined, While or Parallel."""

    syntax = ""


@dataclass(frozen=True, eq=False)
class Assume(Stmt):
    """A fact that the compiler may use; the interpreter checks it."""

    cond: Expr


@dataclass(frozen=True, eq=False)
class Check(Stmt):
    """A condition that has to hold: where it does not, the call fails with ``text`` (a GPU traps)."""

    syntax = "check(cond, text!r)"

    cond: Expr
    text: str


@dataclass(frozen=True, eq=False)
class Print(Stmt):
    """A line for people: ``text`` with a ``{}`` for every value, in the form of `str.format`. Once per
    iteration of the Parallel around it; outside of one, once per thread on a GPU and once per block
    elsewhere. Values are scalars."""

    syntax = "print(text!r, *values)"

    text: str
    values: tuple[Expr, ...] = ()
