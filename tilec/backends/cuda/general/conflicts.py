"""Which statements of consumers may change places: what each touches, names and releases."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.nodes import GiveBack
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Atomic,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Reduce,
    Scan,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.traits import defined, expressions, mentioned, written
from tilec.lowering.analysis.uses import with_overlapping

#: Statements that do nothing but what their fields say.
_KNOWN = (Alloc, Assume, Atomic, Bind, Copy, Fill, For, Gemm, GiveBack, If, Parallel, Reduce, Scan, Store,
          WaitPhase)  # fmt: skip


@dataclass(frozen=True)
class Touched:
    """Buffers and variables: all that a statement names, and those that it changes or defines."""

    every: Set[Var]
    changed: Set[Var]

    def conflicts(self, other: Touched) -> bool:
        """Whether the order of two statements counts."""
        return bool(self.changed & other.every or other.changed & self.every)

    def buffers(self) -> Touched:
        """The buffers alone."""
        return Touched(_buffers(self.every), _buffers(self.changed))

    def without(self, tiles: Set[Var]) -> Touched:
        """All but some."""
        return Touched(self.every - tiles, self.changed - tiles)


def touched(block: Block, launch: Launch) -> Touched:
    """What statements touch. A wait changes its barrier and what the stage that it names stands for; a
    GiveBack its barrier and the tiles that others may overwrite behind it."""
    inside = list(walk(block))
    every = {name for stmt in inside for name in mentioned(stmt)}
    changed = {name for stmt in inside for name in (*written(stmt), *defined(stmt))}
    for stmt in inside:
        if isinstance(stmt, GiveBack):
            changed |= {stmt.barrier, *stmt.tiles}
        elif isinstance(stmt, WaitPhase):
            changed |= {stmt.barrier, *(node for node in walk_expr(stmt.index) if isinstance(node, Var))}
    tensors = with_overlapping(_buffers(changed), launch)
    return Touched(every | tensors, changed | tensors)


def is_known(block: Block) -> bool:
    """Whether statements do nothing but what their fields say."""
    inside = list(walk(block))
    return all(isinstance(stmt, _KNOWN) for stmt in inside) and not any(
        is_foreign(node) for stmt in inside for expr in expressions(stmt) for node in walk_expr(expr)
    )


def _buffers(found: Set[Var]) -> set[Var]:
    return {name for name in found if tirx.is_buffer_var(name)}
