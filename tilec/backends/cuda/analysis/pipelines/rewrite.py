"""The pipelined loops of a launch: which of their loads may run ahead of the trip that uses them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.analysis.pipelines.loads_ahead import Load, load_of
from tilec.ir.exprs import inlined, loads, uses
from tilec.ir.nodes import (
    Block,
    Break,
    Copy,
    For,
    If,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    children,
    is_global,
    walk,
)
from tilec.ir.roads import Loss, Road
from tilec.ir.serial import serial
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import with_overlapping, written_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

IN_TURN = "loaded in the trip that uses it, not ahead"
_BRANCH = Loss(
    "async_copy",
    "whether it is loaded is known in the trip itself alone, or the branch has another side",
    "load under one condition that follows from the loop variable and from what the loop does not change",
)
_PART = Loss(
    "async_copy",
    "it fills a part of a tile, and whole tiles alone have versions",
    "fill the tile by one T.copy, or by copies of its next rows in a T.serial of their own",
)


class PipelineRewrite(ScopedRewrite):
    """Rewrites the pipelined loops of one launch; ``roads`` are what has become of their loads."""

    #: Statements that a loop with loads ahead must not have, with their names in the language.
    leaves: tuple[tuple[type[Stmt], str], ...] = ((Break, "break"),)

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.roads: list[Road] = []

    @abstractmethod
    def ahead(self, loop: Pipelined) -> list[Stmt]:
        """What becomes of a loop of two stages or more; nothing where none of its loads runs ahead."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Pipelined loops become serial ones."""
        if not isinstance(stmt, Pipelined):
            return super().stmt(stmt)
        self._learn(stmt)
        asks = self._asks_for_stages(stmt)
        made = self.ahead(stmt) if asks else []
        if asks:
            self._tell_branches(stmt.body)
            self._tell_parts(stmt.body)
        return made or [serial(stmt, self.block(stmt.body))]

    def _asks_for_stages(self, loop: Pipelined) -> bool:
        """Whether loads may run ahead at all."""
        found = [stmt for stmt in loop.body if load_of(stmt) is not None]
        if loop.num_stages < 2:
            how = f"loaded in the trip that uses it: num_stages = {loop.num_stages} keeps none ahead"
            self.roads += [road_of(stmt, "waits", how) for stmt in found]
            return False
        inside = list(walk(loop.body))
        leaving = (name for kind, name in self.leaves if any(isinstance(stmt, kind) for stmt in inside))
        word = next(leaving, None)
        if word is None:
            return True
        left = "the loop" if word == "break" else "a trip"
        why, remedy = f"{left} may end early, by {word}", "bound the loop by its condition instead"
        loss = Loss("async_copy", why, remedy)
        self.roads += [road_of(stmt, "waits", IN_TURN, loss) for stmt in found]
        return False

    def _tell_branches(self, block: Block) -> None:
        """That loads inside of branches wait, which stand in front of one where they need not."""
        for stmt in block:
            if not isinstance(stmt, If) or load_of(stmt):
                continue
            for inner in children(stmt):
                self.roads += [road_of(each, "waits", IN_TURN, _BRANCH) for each in inner if load_of(each)]
                self._tell_branches(inner)

    def _tell_parts(self, block: Block) -> None:
        """That what a trip, or a loop in it, copies to a part of a tile waits."""
        inner = (each for stmt in block if isinstance(stmt, For) for each in stmt.body)
        parts = (stmt for stmt in (*block, *inner) if isinstance(stmt, Copy) and _fills_part(stmt))
        self.roads += [road_of(stmt, "waits", IN_TURN, _PART) for stmt in parts]

    def mutable(self, loop: Pipelined) -> set[Var]:
        """The buffers that a loop changes."""
        return with_overlapping(written_in(loop.body), self.launch)

    def unknown_place(self, load: Load, loop: Pipelined, mutable: set[Var]) -> Loss | None:
        """Why it is not known before its trip where a load reads; None where it is."""
        if is_told(load.places, load.vars, loop, self.launch, mutable):
            return None
        return Loss(
            "async_copy",
            "its place is known in the trip itself alone",
            "compute the place from the loop variable and from what stands before the loop",
        )


def is_told(
    exprs: Sequence[Expr], own: Sequence[Var], loop: Pipelined, launch: Launch, mutable: set[Var]
) -> bool:
    """Whether all threads can compute ``exprs``, with variables of their ``own``, in front of a trip of
    ``loop``: they depend on nothing that the loop changes, or that stands in it."""
    values = values_of(loop.body)
    known = [inlined(expr, values) for expr in exprs]
    inner = {var for stmt in walk(loop.body) for var in _defined(stmt)} - set(own)
    unknown = inner | set(launch.thread_vars)
    read = {load.source for expr in known for load in loads(expr)}
    return not read & mutable and not any(uses(expr, unknown) for expr in known)


def _fills_part(stmt: Copy) -> bool:
    shared = stmt.dst.buffer.scope() == "shared.dyn" and not is_whole(stmt.dst)
    return shared and is_global(stmt.src.buffer)


def written_source(load: Load, mutable: set[Var]) -> Loss | None:
    """That what a load brings may change before its trip."""
    if load.source not in mutable:
        return None
    why = f"the loop writes {load.source.name}, which it loads"
    return Loss("async_copy", why, "write to another tensor")


def _defined(stmt: Stmt) -> tuple[Var, ...]:
    return defined(stmt) if children(stmt) else ()
