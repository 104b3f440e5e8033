"""The roads of statements, as lowering says them: what a statement reads and writes, where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import Alloc, Block, Launch, Stmt, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.roads import Loss, Road, in_order
from tilec.ir.traits import buffers, written

if TYPE_CHECKING:
    from tvm.ir import Var

#: Names of a statement's side; the rest are dots.
_MOST_NAMES = 4


def road_of(stmt: Stmt | Block, kind: str, instruction: str, loss: Loss | None = None) -> Road:
    """The road of a statement, or of the statements of a loop's body."""
    block = stmt if isinstance(stmt, tuple) else (stmt,)
    at = next((inner.loc for inner in walk(block) if inner.loc is not None), None)
    file, line = (at.file, at.line) if at is not None else ("", 0)
    return Road(described(block), kind, instruction, file, line, loss)


def in_line_of(road: Road, stmt: Stmt) -> Road:
    """``road`` in the line of ``stmt`` where it has none."""
    if road.line or stmt.loc is None:
        return road
    return replace(road, file=stmt.loc.file, line=stmt.loc.line)


def described(block: Block) -> str:
    """What statements read -> what they write, memory of single threads left out where there is other."""
    if isinstance(block[0], Launch):
        return "T.Kernel"
    if isinstance(block[0], Alloc) and len(block) == 1:
        return str(block[0].buffer.name)
    stmts = [stmt for stmt in walk(block) if not isinstance(stmt, Alloc)]
    targets = [buffer for stmt in stmts for buffer in written(stmt)]
    sources = [buffer for stmt in stmts for buffer in buffers(stmt)]
    reads, writes = _names(sources, targets), _names(targets, ())
    return f"{reads} -> {writes}" if reads and writes else writes or reads or type(block[0]).__name__


def _names(found: Sequence[Var], without: Sequence[Var]) -> str:
    shared = [buffer for buffer in found if buffer.scope() not in PER_THREAD]
    names = list(dict.fromkeys(str(buffer.name) for buffer in shared or found if buffer not in without))
    return ", ".join(names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 1], "..."])


def with_roads(launch: Launch, roads: Iterable[Road]) -> Launch:
    """``launch`` with these roads, too."""
    return replace(launch, roads=in_order((*launch.roads, *roads)))


def with_notes(launch: Launch, notes: Iterable[str]) -> Launch:
    """``launch`` with these lines for `explain`, too, each once."""
    return replace(launch, notes=tuple(dict.fromkeys((*launch.notes, *notes))))
