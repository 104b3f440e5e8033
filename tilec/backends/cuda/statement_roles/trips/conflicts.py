"""Which statements of consumers may change places: what each touches, names and releases."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.nodes import ArriveOnce, BoxLoad, GiveBack
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
    ScaledGemm,
    Scan,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import AllocBarrier, WaitPhase
from tilec.ir.traits import defined, expressions, mentioned, written
from tilec.lowering.analysis.uses import with_overlapping

#: Statements that do nothing but what their fields say.
_KNOWN = (Alloc, Assume, Atomic, Bind, Copy, Fill, For, Gemm, GiveBack, If, Parallel, Reduce,
          ScaledGemm, Scan, Store, WaitPhase)  # fmt: skip

#: Tiles by the barrier that tells of them.
Filled = Mapping[Var, Set[Var]]
_UNKNOWN: Filled = {}


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


def touched(block: Block, launch: Launch, filled: Filled = _UNKNOWN) -> Touched:
    """What statements touch. A wait changes its barrier and the tiles that are ``filled`` behind it, where
    they are not known what the stage that it names stands for; a GiveBack its barrier and the tiles that
    others may overwrite behind it."""
    inside = list(walk(block))
    every = {name for stmt in inside for name in mentioned(stmt)}
    changed = {name for stmt in inside for name in (*written(stmt), *defined(stmt))}
    for stmt in inside:
        if isinstance(stmt, GiveBack):
            changed |= {stmt.barrier, *stmt.tiles}
        elif isinstance(stmt, WaitPhase):
            stage = {node for node in walk_expr(stmt.index) if isinstance(node, Var)}
            changed |= {stmt.barrier, *filled.get(stmt.barrier, stage)}
    tensors = with_overlapping(_buffers(changed), launch)
    return Touched(every | tensors, changed | tensors)


def filled_tiles(launch: Launch) -> Filled:
    """The tiles whose stage is there behind a wait, for each barrier of which TMA alone tells."""
    found: dict[Var, set[Var]] = {}
    others: set[Var] = set()
    for stmt in walk(launch.body):
        if isinstance(stmt, BoxLoad):
            found.setdefault(stmt.barrier, set()).add(stmt.dst.buffer)
        elif not isinstance(stmt, (AllocBarrier, ArriveOnce, WaitPhase)):
            others |= mentioned(stmt)
    return {barrier: tiles for barrier, tiles in found.items() if barrier not in others}


def is_known(block: Block) -> bool:
    """Whether statements do nothing but what their fields say."""
    inside = list(walk(block))
    return all(isinstance(stmt, _KNOWN) for stmt in inside) and not any(
        is_foreign(node) for stmt in inside for expr in expressions(stmt) for node in walk_expr(expr)
    )


def _buffers(found: Set[Var]) -> set[Var]:
    return {name for name in found if tirx.is_buffer_var(name)}
